// Package testkit is what tests of several packages share: engines with a session, sessions used at once, generation
// by programs of several steps, checkpoints in 8-bit floats with scales.
package testkit

import (
	"testing"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

// Session makes an engine and a session of it, which are closed as the test ends: before what its
// options name is, where that was registered to be closed (testing.TB.Cleanup) earlier.
func Session(t testing.TB, opt engine.Options) (*engine.Engine, *engine.Session) {
	t.Helper()
	e, err := engine.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(errlist.Join(err, e.Close()))
	}
	t.Cleanup(func() {
		if err := errlist.Join(s.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, s
}
