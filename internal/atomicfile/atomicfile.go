// Package atomicfile replaces files so that a reader, a full disk, a kill or a power cut
// finds the old file or the new one, never a part: the new one is written beside it under
// another name, synced, and renamed.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
)

// File is a file that is being written; nothing is at its path before Commit.
type File struct {
	*os.File
	path   string
	mode   fs.FileMode
	fresh  bool  // nothing may be at the path when it is given its name
	direct bool  // the path is a device or a pipe, which is written to and not replaced
	failed error // of a Write
}

const (
	mark = ".part"
	// stale is the age from which an unfinished file is one that a killed process left:
	// what still writes has changed its file since.
	stale = 24 * time.Hour
)

// Create begins a file in an existing folder. mode are its permissions; a file that is
// replaced keeps its own, and where a symbolic link is at the path the file behind it is
// replaced. Unfinished files of the same name that killed processes left a day ago are removed.
func Create(path string, mode fs.FileMode) (*File, error) {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil, &fs.PathError{Op: "write", Path: path, Err: errors.New("it is a folder")}
	case err == nil && !info.Mode().IsRegular():
		f, err := plainfile.Create(path)
		if err != nil {
			return nil, err
		}
		return &File{File: f, path: path, direct: true}, nil
	case err == nil:
		mode = info.Mode().Perm()
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	sweep(dir, base)
	f, err := os.CreateTemp(dir, "."+base+".*"+mark)
	if err != nil {
		return nil, unnamed(err, dir)
	}
	unfinished.Store(f.Name(), nil)
	return &File{File: f, path: path, mode: mode}, nil
}

// unnamed says what is wrong with the folder, and not with the name of an unfinished file, which nobody gave.
func unnamed(err error, dir string) error {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return err
	}
	if p.Path = filepath.Clean(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s does not exist: make it, or write elsewhere: %w", p.Path, fs.ErrNotExist)
	}
	return p
}

// Write makes Commit fail where it does.
func (f *File) Write(data []byte) (int, error) {
	n, err := f.File.Write(data)
	if err != nil {
		f.failed = err
	}
	return n, err
}

// unfinished are the names of files that are being written.
var unfinished sync.Map

// DiscardAll removes all unfinished files. It is for a program that ends at once.
func DiscardAll() {
	unfinished.Range(func(name, _ any) bool {
		os.Remove(name.(string))
		return true
	})
}

// sweep removes what was left unfinished long ago. That it cannot is no error.
func sweep(dir, base string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), "."+base+".") || !strings.HasSuffix(e.Name(), mark) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > stale {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Commit gives the file its name, when all of it is on the disk. Where that fails nothing is
// left behind, and what was at the path still is.
func (f *File) Commit() error {
	if f.File == nil {
		return fs.ErrClosed
	}
	if f.failed != nil {
		return errlist.Join(f.failed, f.Discard())
	}
	if f.direct {
		err := f.File.Close()
		f.File = nil
		return err
	}
	// CreateTemp's 0600 would hide the file from others.
	err := errlist.Join(f.Chmod(f.mode), f.Sync(), f.File.Close())
	name := f.Name()
	f.File = nil
	defer unfinished.Delete(name)
	switch {
	case err == nil && f.fresh:
		err = place(name, f.path)
	case err == nil:
		err = os.Rename(name, f.path)
	}
	if err != nil {
		return errlist.Join(err, os.Remove(name))
	}
	syncDir(filepath.Dir(f.path))
	return nil
}

// Fresh makes Commit fail with fs.ErrExist where something came to be at the path meanwhile.
func (f *File) Fresh() { f.fresh = !f.direct }

// place gives a file its name, if nothing has it: a link is not made over another file. Where the file system has none
// a rename must do, with a moment between the question and the answer.
func place(name, path string) error {
	err := os.Link(name, path)
	if err == nil {
		return os.Remove(name)
	}
	if _, there := os.Lstat(path); there == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return os.Rename(name, path)
}

// Discard removes an unfinished file; after Commit it does nothing.
func (f *File) Discard() error {
	if f == nil || f.File == nil {
		return nil
	}
	name, err := f.Name(), f.File.Close()
	f.File = nil
	if f.direct {
		return err
	}
	unfinished.Delete(name)
	return errlist.Join(err, os.Remove(name))
}

// syncDir makes the new name last. Not every system can sync a folder; the file is whole
// under one name or the other all the same.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}

// Write replaces a file by data; see Create. What is at the path and is no regular file stays
// what it is, and the error says so.
func Write(path string, data []byte, mode fs.FileMode) error {
	if err := plainfile.Check(path); err != nil {
		return err
	}
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errlist.Join(err, f.Discard())
	}
	return f.Commit()
}
