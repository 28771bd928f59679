package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/serve"
)

// fullOfCaches is a device without room for caches.
type fullOfCaches struct{ backends.Device }

func (d fullOfCaches) Alloc(n int, use backends.Use) (backends.Buffer, error) {
	if use == backends.States {
		return nil, &backends.OutOfMemory{Need: int64(n), What: use.String()}
	}
	return d.Device.Alloc(n, use)
}

// TestServeWithoutRoom: where the caches of many sequences find no memory that is an error which says what to do, and
// the server does not answer one behind the other instead.
func TestServeWithoutRoom(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	e, err := engine.New(t.Context(), engine.Options{Model: file, Device: fullOfCaches{dev}, Context: 16, Seed: 1,
		Set: map[string]string{"L": "1", "D": "64", "H": "4", "G": "4", "F": "96", "V": "300"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var said bytes.Buffer
	m, err := (&app{err: &said}).sequences(e, "m", engine.SchedulerOptions{Sequences: 4, Tokens: 64},
		serve.SessionOptions{})
	if m != nil || exitCode(err) != exitMemory || !strings.Contains(err.Error(), "--cache-memory") {
		t.Errorf("%v, %v; it said %q", m, err, said.String())
	}
}
