package hip

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
)

// Cache is compiled kernels on disk. A file holds a checksum and the code; it
// appears under its name only when it is whole. A file that does not match its
// checksum is removed and compiled anew.
type Cache struct {
	Dir  string // "": no cache
	Most int64  // bytes that are kept; the longest unused go first
}

// Entry is a file of the cache.
type Entry struct {
	Key  string
	File string // its path
	What string // file and macros that it was compiled from
	Size int64
	Used time.Time
}

const (
	cacheMagic = "greta kernel 1\n"
	cacheMost  = 512 << 20
	cacheExt   = ".gk"
)

// DefaultCache is in the user's cache folder.
func DefaultCache() Cache {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}
	}
	return Cache{filepath.Join(dir, "greta", "kernels"), cacheMost}
}

func (c Cache) path(key string) string { return filepath.Join(c.Dir, key+cacheExt) }

// load gives the code under a key, or nil.
func (c Cache) load(key string) []byte {
	if c.Dir == "" {
		return nil
	}
	path := c.path(key)
	data, err := plainfile.Read(path)
	if err != nil {
		return nil
	}
	_, code, ok := parseEntry(data)
	if !ok {
		os.Remove(path) // torn or altered
		return nil
	}
	now := time.Now()
	os.Chtimes(path, now, now) // for Most; a folder that cannot be written is no error
	return code
}

// parseEntry divides a file in what it says of itself and its code.
func parseEntry(data []byte) (what string, code []byte, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok || len(rest) < sha256.Size {
		return "", nil, false
	}
	sum, rest := rest[:sha256.Size], rest[sha256.Size:]
	if got := sha256.Sum256(rest); !bytes.Equal(sum, got[:]) {
		return "", nil, false
	}
	line, code, ok := bytes.Cut(rest, []byte{'\n'})
	return string(line), code, ok && len(code) > 0
}

// store puts code under a key. That it could not is no error of the program:
// the code is compiled again next time.
func (c Cache) store(key string, what program, code []byte) error {
	if c.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	body := append([]byte(string(what)+"\n"), code...)
	sum := sha256.Sum256(body)
	return atomicfile.Write(c.path(key), slices.Concat([]byte(cacheMagic), sum[:], body), 0o644)
}

// List gives the cache's files, the latest used first.
func (c Cache) List() ([]Entry, error) {
	files, err := os.ReadDir(c.Dir)
	if errors.Is(err, fs.ErrNotExist) || c.Dir == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), cacheExt)
		info, err := f.Info()
		if !ok || err != nil {
			continue
		}
		e := Entry{Key: key, File: c.path(key), Size: info.Size(), Used: info.ModTime()}
		if data, err := plainfile.Read(c.path(key)); err == nil {
			if what, _, ok := parseEntry(data); ok {
				e.What = what
			} else {
				e.What = "damaged"
			}
		}
		all = append(all, e)
	}
	sorting.Sort(all, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// Clear removes all files of the cache and says how many there were.
func (c Cache) Clear() (int, error) { return c.drop(0) }

// trim removes the longest unused files beyond Most bytes.
func (c Cache) trim() error {
	if c.Dir == "" || c.Most <= 0 {
		return nil
	}
	_, err := c.drop(c.Most)
	return err
}

// drop keeps the latest used files up to most bytes.
func (c Cache) drop(most int64) (int, error) {
	if c.Dir == "" {
		return 0, nil
	}
	files, err := filepath.Glob(filepath.Join(c.Dir, "*"+cacheExt))
	if err != nil {
		return 0, err
	}
	type aged struct {
		path string
		fs.FileInfo
	}
	var all []aged
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			all = append(all, aged{path, info})
		}
	}
	sorting.Sort(all, func(a, b aged) int { return b.ModTime().Compare(a.ModTime()) })
	var sum int64
	dropped := 0
	for _, a := range all {
		if sum += a.Size(); sum > most {
			if err := os.Remove(a.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return dropped, fmt.Errorf("kernel cache: %w", err)
			}
			dropped++
		}
	}
	return dropped, nil
}
