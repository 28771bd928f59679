// Package plainfile opens files that are expected to be regular ones. A pipe in the place of
// one would be waited for until somebody writes to it, and a device may never end.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
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

// Create is os.Create that waits for nobody: a pipe that no program reads is an error.
func Create(path string) (*os.File, error) {
	if st, err := os.Stat(path); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
		return os.Create(path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		err = fmt.Errorf("%s: a pipe that no program reads", path)
	}
	return f, err
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

// Fields gives the lines of a small file of records, each divided at its tabs. A file that is missing or has more than
// most bytes has none: it is none of ours.
func Fields(path string, most int64) ([][]string, error) {
	f, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || int64(len(data)) > most {
		return nil, err
	}
	var all [][]string
	for line := range strings.Lines(string(data)) {
		all = append(all, strings.Split(strings.TrimRight(line, "\r\n"), "\t"))
	}
	return all, nil
}

// Field makes a text a field of such a line: without what ends fields or lines.
func Field(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
}
