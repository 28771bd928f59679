// Package packcache keeps weights in the layout that kernels want in files, so
// that a model is packed once and mapped from then on.
//
// A file holds the packed tensors of one model for one set of layouts. It is
// named by a key over the identity of the source's files and over what is
// packed, so nothing in it needs to be parsed: who knows the key knows where
// every tensor lies. Files are filled under a temporary name through a shared
// mapping, whose blocks were reserved before, and renamed when they are whole.
//
// The temporary file is locked while it is filled: a second process that wants
// the same file waits for it, and what a crashed one left is used again or
// removed. Renaming is not preceded by a sync. Instead every byte of a file is
// compared with the file's checksums whenever it is opened: a power failure may
// have lost pages, and disks and people change bits. That reads the file once, on
// all cores, which costs about what the first token costs; its pages are in memory then.
package packcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
)

// Config says where packed weights are kept, and how much of them.
type Config struct {
	Off   bool   // keep nothing
	Dir   string // folder of the files; "": DefaultDir
	Limit int64  // bytes of all files; 0: DefaultLimit
	Least int64  // models whose packed form is smaller are not kept; 0: 32 MB, negative: none
}

const defaultLeast = 32 << 20

// Worth says whether a packed form of so many bytes is kept.
func (c Config) Worth(bytes int64) bool {
	least := c.Least
	if least == 0 {
		least = defaultLeast
	}
	return !c.Off && bytes > 0 && bytes >= least
}

// Variables of the environment that replace the defaults.
const (
	DirVariable   = "GRETA_CACHE"       // a folder, or "off"
	LimitVariable = "GRETA_CACHE_LIMIT" // bytes, with or without KB, MB, GB, TB
)

// FromEnvironment fills what c leaves open from the environment.
func (c Config) FromEnvironment() (Config, error) {
	dir := os.Getenv(DirVariable)
	switch {
	case strings.EqualFold(dir, "off"):
		c.Off = c.Off || c.Dir == ""
	case c.Dir == "" && dir != "":
		c.Dir = dir
	}
	if c.Limit == 0 {
		if text := os.Getenv(LimitVariable); text != "" {
			n, err := ParseBytes(text)
			if err != nil {
				return c, fmt.Errorf("%s: %w", LimitVariable, err)
			}
			c.Limit = n
		}
	}
	return c, nil
}

// DefaultDir is greta/packed in the user's folder of caches, which
// XDG_CACHE_HOME names on most systems.
func DefaultDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "greta", "packed"), nil
}

// Model is what is to be kept: which tensors in which layouts, of which source.
type Model struct {
	Label    string // for people: part of the file's name
	Identity []byte // of the source's files: see Identity
	Entries  []Entry
}

// Entry is one tensor in one layout.
type Entry struct {
	// Name and Recipe determine the bytes, given the source: which tensors they
	// come from, their type, shape and conversions, and the ID of the layout.
	Name, Recipe string
	Size         int // bytes of the packed form
}

// File is a model's packed weights, mapped. They are read-only: writing to them faults.
type File struct {
	Path  string
	Built bool // by this call, not found
	// Damage says what was wrong with the file that was found and packed again; nil: nothing.
	Damage error
	data   []byte
	lay    layout
}

// Data gives the bytes of entry i, which start on a page. They are valid until Close.
func (f *File) Data(i int) []byte {
	at := f.lay.offsets[i]
	n := f.lay.sizes[i]
	return f.data[at : at+n : at+n]
}

// Close unmaps the file; nil and closed ones have nothing to unmap.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	data := f.data
	f.data = nil
	if data == nil {
		return nil
	}
	return unmap(data)
}

// Open maps a model's packed weights. Where they are not kept yet, build is
// called for every entry in order to fill its bytes, which are zero before, and
// the file is kept. Every error but build's own and the context's means that
// the cache cannot help, and is no reason to give up: disk full, no permission,
// no such facility on this system.
func Open(ctx context.Context, c Config, m Model, build func(entry int, dst []byte) error) (*File, error) {
	dir := c.Dir
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lay, err := newLayout(m)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lay.fileName(m.Label))
	wait := time.Now().Add(30*time.Second + time.Duration(lay.size/(200<<20))*time.Second)
	var damage error
	for {
		f, err := openKept(path, lay)
		if err == nil {
			return f, nil
		}
		if bad := (*damaged)(nil); errors.As(err, &bad) {
			damage = err
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		tmp, err := lockTemporary(path + temporary)
		if err != nil {
			return nil, err
		}
		if tmp != nil {
			// Whoever held the lock may have finished in between.
			if f, err := openKept(path, lay); err == nil {
				os.Remove(tmp.Name())
				tmp.Close()
				return f, nil
			}
			f, err := fill(ctx, c, tmp, path, lay, build)
			if err == nil {
				f.Damage = damage
			}
			return f, err
		}
		if time.Now().After(wait) {
			return nil, fmt.Errorf("%s: another process has been filling it for too long", path+temporary)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// damaged says that a file was not what its name says, and is removed.
type damaged struct {
	path string
	err  error
}

func (d *damaged) Error() string { return d.path + ": " + d.err.Error() }
func (d *damaged) Unwrap() error { return d.err }

// openKept maps the file at path if it is whole. What is not is removed, and
// the error is then a *damaged.
func openKept(path string, lay layout) (*File, error) {
	var data []byte
	f, err := plainfile.Open(path)
	if err == nil {
		defer f.Close()
		data, err = mapWhole(f, lay)
	} else if no := (*plainfile.Irregular)(nil); !errors.As(err, &no) {
		return nil, err
	}
	if err != nil {
		if rm := os.Remove(path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w, and it cannot be removed: %w", path, err, rm)
		}
		return nil, &damaged{path, err}
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // used last: only a hint for eviction
	return &File{Path: path, data: data, lay: lay}, nil
}

// mapWhole maps a file whose length, header and contents are right.
func mapWhole(f *os.File, lay layout) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != int64(lay.size) {
		return nil, fmt.Errorf("%d bytes, not %d", st.Size(), lay.size)
	}
	data, err := mapFile(f, lay.size, false)
	if err != nil {
		return nil, err
	}
	if err := lay.check(data); err != nil {
		return nil, errlist.Join(err, unmap(data))
	}
	return data, nil
}

// fill builds the file in tmp, which is locked, and gives it its name.
func fill(ctx context.Context, c Config, tmp *os.File, path string, lay layout, build func(int, []byte) error) (_ *File,
	err error) {
	defer tmp.Close()
	var data []byte
	defer func() {
		if err == nil {
			return
		}
		if data != nil {
			err = errlist.Join(err, unmap(data))
		}
		os.Remove(tmp.Name())
	}()
	if err := makeRoom(c, filepath.Dir(path), int64(lay.size)); err != nil {
		return nil, err
	}
	// A crashed process may have left something in it.
	if err := tmp.Truncate(0); err != nil {
		return nil, err
	}
	// Writing to a mapping of a file without blocks kills the process when
	// the disk is full, so they are reserved.
	if err := reserve(tmp, int64(lay.size)); err != nil {
		return nil, fmt.Errorf("reserving %d bytes in %s: %w", lay.size, filepath.Dir(path), err)
	}
	if data, err = mapFile(tmp, lay.size, true); err != nil {
		return nil, err
	}
	for i, at := range lay.offsets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := build(i, data[at:at+lay.sizes[i]:at+lay.sizes[i]]); err != nil {
			return nil, err
		}
		lay.sum(data, i)
	}
	lay.putHeader(data)
	if err := protect(data); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return nil, err
	}
	return &File{Path: path, Built: true, data: data, lay: lay}, nil
}
