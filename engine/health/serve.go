package health

import (
	"encoding/json"
	"io"

	"github.com/greta-project/greta/backends"
)

// Serve is the child's side of a check: it writes the stages and the result
// as lines of JSON. open opens the device that the parent has; passing is
// Settings.Passing.
func Serve(w io.Writer, path string, open func() (backends.Device, error), passing func(error) bool) error {
	e := json.NewEncoder(w)
	stage := func(s string) { e.Encode(message{Stage: s}) }
	stage("opening the device")
	dev, err := open()
	if err != nil {
		return e.Encode(message{Done: true, Error: err.Error(), Passing: true})
	}
	id := identity(dev.Info())
	if err := e.Encode(message{Device: &id}); err != nil {
		return err
	}
	err = Check(dev, path, stage)
	stage("closing the device")
	if e := dev.Close(); err == nil {
		err = e
	}
	m := message{Done: true}
	if err != nil {
		m.Error, m.Passing = err.Error(), passing(err)
	}
	return e.Encode(m)
}
