// Package plainfile opens files that are expected to be regular ones. A pipe in the place of
// one would be waited for until somebody writes to it, and a device may never end.
package plainfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Irregular says that something else than a regular file is at a path.
type Irregular struct {
	Path string
	Mode fs.FileMode
}

func (e *Irregular) Error() string {
	what := "a device"
	switch {
	case e.Mode.IsDir():
		what = "a folder"
	case e.Mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case e.Mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Sprintf("%s: expected a regular file, found %s", e.Path, what)
}

// Check gives nil for a regular file and where nothing is, an *Irregular for anything else.
func Check(path string) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return &Irregular{path, st.Mode()}
	}
	return nil
}

// Open opens a regular file to read it. It waits for nobody.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe may have taken its place
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &Irregular{path, st.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read gives all of a regular file.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
