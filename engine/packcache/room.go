package packcache

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/sorting"
)

const (
	suffix    = ".packed"
	temporary = ".tmp"
)

// DefaultLimit bounds all files together where the user does not, but two of
// the largest models always have room.
const DefaultLimit int64 = 32e9

// kept is a file of the cache.
type kept struct {
	path string
	size int64
	used time.Time
}

// list gives the files of a cache, least recently used first, and removes
// temporary ones that nobody fills.
func list(dir string) ([]kept, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []kept
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		if strings.HasSuffix(path, suffix+temporary) {
			removeOrphan(path)
			continue
		}
		st, err := n.Info()
		if err != nil || !st.Mode().IsRegular() || !strings.HasSuffix(path, suffix) {
			continue
		}
		all = append(all, kept{path, st.Size(), st.ModTime()})
	}
	sorting.Sort(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	return all, nil
}

// freeBytes is what a file system still takes. A variable for tests.
var freeBytes = diskFree

// makeRoom removes files until one of so many bytes fits the limit and a half
// of what the disk would have free without the cache. Nothing is removed where
// that would not help. A removed file that a process has mapped lives on until
// it ends.
func makeRoom(c Config, dir string, size int64) error {
	all, err := list(dir)
	if err != nil {
		return err
	}
	var held, largest int64
	for _, k := range all {
		held += k.size
		largest = max(largest, k.size)
	}
	limit := c.Limit
	if limit == 0 {
		limit = max(DefaultLimit, 2*max(size, largest))
	}
	free, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if half := (free + held) / 2; half < limit {
		limit = half
	}
	if size > limit {
		return fmt.Errorf("%s: %.2f GB are more than the %.2f GB that it may use; %s or free disk space would change that",
			dir, float64(size)/1e9, float64(limit)/1e9, LimitVariable)
	}
	for _, k := range all {
		if held+size <= limit {
			break
		}
		if err := os.Remove(k.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		held -= k.size
	}
	return nil
}

// ParseBytes reads a size such as 500MB, 20 GB or 1073741824; the units are decimal.
func ParseBytes(text string) (int64, error) {
	digits, unit := strings.ToUpper(strings.TrimSpace(text)), 1.0
	digits = strings.TrimSuffix(digits, "B")
	for i, u := range "KMGT" {
		if cut, ok := strings.CutSuffix(digits, string(u)); ok {
			digits = cut
			for range i + 1 {
				unit *= 1000
			}
			break
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !(n*unit >= 1 && n*unit < maxSize) {
		return 0, fmt.Errorf("%q is no size; write bytes, or a number with KB, MB, GB or TB", text)
	}
	return int64(n * unit), nil
}
