// Package prefixcache keeps pages of keys and values in a folder, so that a prompt
// whose beginning was computed before, by an earlier process too, is not computed again.
//
// A page is one file, named by the page's hash, which stands for all that the content
// depends on. It is written under another name and renamed, so that a process that is
// killed at any moment leaves whole pages and, at worst, a part that is removed later. There is no
// index on disk: the folder is read when it is opened. What a power cut or a bad disk may
// do to a file its checksum finds; such a page is removed, and is one that was not there.
//
// Several processes may use one folder.
package prefixcache

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
)

// Key names a page: a cryptographic hash of all that its content depends on.
type Key [32]byte

// Options say where pages are kept and how many.
type Options struct {
	Dir   string
	Limit int64 // bytes of all files; 0: DefaultLimit
	Queue int   // bytes that wait to be written at most, what comes beyond is not kept; 0: 256 MB
}

// DefaultLimit bounds the folder where the user does not.
const DefaultLimit int64 = 16e9

const (
	suffix = ".page"
	part   = ".part"
	stale  = time.Hour // an unfinished file of this age is one that a killed process left
	header = 8 + 32 + 8 + 4
)

var magic = [8]byte{'g', 'r', 'e', 't', 'a', 'k', 'v', 1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Cache is an open folder. Its methods may be called by any goroutine.
type Cache struct {
	dir   string
	limit int64
	most  int

	mu     sync.Mutex
	size   int64 // of all files as far as is known
	fresh  int64 // written since the folder was read
	queued int   // bytes that wait to be written
	stats  Stats
	err    error // the first that kept a page from being written
	closed bool
	jobs   chan job
	done   chan struct{}
}

type job struct {
	key  Key
	data []byte
}

// Stats count pages since Open.
type Stats struct {
	Asked, Found int
	Written      int
	Dropped      int // not kept, since too many waited
	Damaged      int // found, but not as they were written
	Evicted      int
}

// Open makes the folder where it is missing, reads what is there, and removes what killed processes left.
func Open(o Options) (*Cache, error) {
	if o.Dir == "" {
		return nil, errors.New("prefix cache: no folder is named")
	}
	if o.Limit < 0 || o.Queue < 0 {
		return nil, fmt.Errorf("prefix cache: a limit of %d and a queue of %d bytes; they must be 0 or more", o.Limit,
			o.Queue)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("prefix cache: %w", err)
	}
	c := &Cache{dir: o.Dir, limit: cmp.Or(o.Limit, DefaultLimit), most: cmp.Or(o.Queue, 256<<20), jobs: make(chan job,
		1024), done: make(chan struct{})}
	if err := c.makeRoom(0); err != nil {
		return nil, fmt.Errorf("prefix cache: %w", err)
	}
	go c.write()
	return c, nil
}

// path spreads files over 256 folders.
func (c *Cache) path(k *Key) string {
	name := hex.EncodeToString(k[:])
	return filepath.Join(c.dir, name[:2], name+suffix)
}

// Has says that a page is there, which it may not be any more when it is asked for.
func (c *Cache) Has(k Key) bool {
	_, err := os.Lstat(c.path(&k))
	return err == nil
}

// Get reads a page of len(dst) bytes, and says whether it was there. A file that is not what was
// written is removed, and is an error.
func (c *Cache) Get(k Key, dst []byte) (found bool, damage error) {
	path := c.path(&k)
	found, damage = c.read(path, &k, dst)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Asked++
	switch {
	case damage != nil:
		c.stats.Damaged++
		_ = os.Remove(path) // else it is found damaged once more
	case found:
		c.stats.Found++
	}
	return found, damage
}

// read gives an error where a file is there and is not the page.
func (c *Cache) read(path string, k *Key, dst []byte) (bool, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return false, nil // not there, or not to be read: it is computed
	}
	defer f.Close()
	var h [header]byte
	if _, err := io.ReadFull(f, h[:]); err != nil {
		return false, err
	}
	if [8]byte(h[:8]) != magic || Key(h[8:40]) != *k || binary.LittleEndian.Uint64(h[40:]) != uint64(len(dst)) {
		return false, fmt.Errorf("%s is not the page of its name", path)
	}
	if _, err := io.ReadFull(f, dst); err != nil {
		return false, err
	}
	if n, err := f.Read(h[:1]); n != 0 || err != io.EOF {
		return false, fmt.Errorf("%s is longer than its page", path)
	}
	if crc32.Update(crc32.Checksum(h[8:48], castagnoli), castagnoli, dst) != binary.LittleEndian.Uint32(h[48:]) {
		return false, fmt.Errorf("%s: the checksum is wrong", path)
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // it was used; where that cannot be noted it leaves earlier
	return true, nil
}

// Put keeps a page. It does not wait for the disk: data belongs to the cache from now on. Where
// too many pages wait it is not kept.
func (c *Cache) Put(k Key, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.queued+len(data) > c.most {
		c.stats.Dropped++
		return
	}
	select {
	case c.jobs <- job{k, data}:
		c.queued += len(data)
	default:
		c.stats.Dropped++
	}
}

// write is the goroutine that writes.
func (c *Cache) write() {
	defer close(c.done)
	for j := range c.jobs {
		err := c.put(&j.key, j.data)
		c.mu.Lock()
		c.queued -= len(j.data)
		if err == nil {
			c.stats.Written++
		} else if c.err == nil {
			c.err = fmt.Errorf("prefix cache: %w", err)
		}
		c.mu.Unlock()
	}
}

func (c *Cache) put(k *Key, data []byte) (err error) {
	path := c.path(k)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	size := int64(header + len(data))
	if size > c.limit {
		return fmt.Errorf("a page of %d bytes is more than the %d that %s may hold", size, c.limit, c.dir)
	}
	// Others may write too: the folder is read anew before this process has added a sixteenth.
	if c.size+size > c.limit || c.fresh+size > c.limit/16 {
		if err := c.makeRoom(size); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "*"+part)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	var h [header]byte
	copy(h[:], magic[:])
	copy(h[8:], k[:])
	binary.LittleEndian.PutUint64(h[40:], uint64(len(data)))
	binary.LittleEndian.PutUint32(h[48:], crc32.Update(crc32.Checksum(h[8:48], castagnoli), castagnoli, data))
	_, err = f.Write(h[:])
	if err == nil {
		_, err = f.Write(data)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		c.size += size
		c.fresh += size
	}
	return err
}

type kept struct {
	path string
	size int64
	used time.Time
}

// makeRoom reads the folder and removes the least recently used pages until size more bytes fit,
// and a sixteenth of the limit beyond, which another process may be writing. Only Open and the writer call it.
func (c *Cache) makeRoom(size int64) error {
	all, err := c.list()
	if err != nil {
		return err
	}
	var held int64
	for _, k := range all {
		held += k.size
	}
	evicted := 0
	if held+size > c.limit {
		for _, k := range all {
			if held+size <= c.limit-c.limit/16 {
				break
			}
			if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			held -= k.size
			evicted++
		}
	}
	c.size, c.fresh = held, 0
	c.mu.Lock()
	c.stats.Evicted += evicted
	c.mu.Unlock()
	return nil
}

// list gives the pages, least recently used first.
func (c *Cache) list() ([]kept, error) {
	folders, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var all []kept
	for _, folder := range folders {
		if len(folder.Name()) != 2 || !folder.IsDir() {
			continue
		}
		dir := filepath.Join(c.dir, folder.Name())
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			st, err := f.Info()
			if err != nil || !st.Mode().IsRegular() {
				continue // removed meanwhile, or not ours
			}
			path := filepath.Join(dir, f.Name())
			switch {
			case strings.HasSuffix(path, suffix):
				all = append(all, kept{path, st.Size(), st.ModTime()})
			case strings.HasSuffix(path, part) && time.Since(st.ModTime()) > stale:
				_ = os.Remove(path) // else the next one tries again
			}
		}
	}
	sorting.Sort(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	return all, nil
}

// Stats says what was done.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Err gives the first error that kept a page from being written until now.
func (c *Cache) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close waits until all pages are written, and gives the first error that kept one from it.
func (c *Cache) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.jobs)
	}
	c.mu.Unlock()
	<-c.done
	return c.err
}
