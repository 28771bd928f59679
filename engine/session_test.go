package engine

import (
	"context"
	"strings"
	"testing"
)

// TestClosed: what is used after it was closed says so.
func TestClosed(t *testing.T) {
	e, err := New(context.Background(), Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	var all []*Session
	for range 2 {
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	expect := func(s *Session, want string) {
		t.Helper()
		if _, err := s.Decode(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decode: %v, want that %s", err, want)
		}
		if _, err := s.Prefill(context.Background(), []int32{1, 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("prefill: %v, want that %s", err, want)
		}
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	expect(all[0], "the session is closed")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	expect(all[1], "the engine is closed")
	if _, err := e.NewSession(); err == nil {
		t.Error("a session of a closed engine")
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
}
