package prefixcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// page makes page i, whose bytes tell whether they are right.
func page(i, size int) (Key, []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(i))
	k := Key(sha256.Sum256(n[:]))
	data := make([]byte, size)
	r := rand.NewChaCha8(k)
	_, _ = r.Read(data)
	return k, data
}

func open(t *testing.T, o Options) *Cache {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get is Get without what was wrong.
func get(c *Cache, k Key, dst []byte) bool {
	found, _ := c.Get(k, dst)
	return found
}

func files(t testing.TB, dir string) (paths []string, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if st, err := d.Info(); err == nil {
			paths, size = append(paths, path), size+st.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths, size
}

// TestPagesOutliveTheProcess, as far as one test can: they are there for the next who opens the folder.
func TestPagesOutliveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	c := open(t, Options{Dir: dir})
	for i := range 50 {
		c.Put(page(i, 1000))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open(t, Options{Dir: dir})
	defer c.Close()
	dst := make([]byte, 1000)
	for i := range 60 {
		k, want := page(i, 1000)
		if got := get(c, k, dst); got != (i < 50) || got && !bytes.Equal(dst, want) || c.Has(k) != got {
			t.Fatalf("page %d: %v", i, got)
		}
	}
	if st := c.Stats(); st.Asked != 60 || st.Found != 50 || st.Damaged != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDamage: whatever is done to a file, its page is not found, and what is left is.
func TestDamage(t *testing.T) {
	damages := map[string]func(b []byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"half a head":  func(b []byte) []byte { return b[:20] },
		"half":         func(b []byte) []byte { return b[:len(b)/2] },
		"last byte":    func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"first byte":   func(b []byte) []byte { b[header] ^= 128; return b },
		"magic":        func(b []byte) []byte { b[7]++; return b },
		"key":          func(b []byte) []byte { b[9]++; return b },
		"length":       func(b []byte) []byte { b[40]++; return b },
		"checksum":     func(b []byte) []byte { b[48]++; return b },
		"one more":     func(b []byte) []byte { return append(b, 0) },
		"zeros":        func(b []byte) []byte { clear(b); return b },
		"another page": func([]byte) []byte { return nil },
	}
	for name, damage := range damages {
		dir := t.TempDir()
		c := open(t, Options{Dir: dir})
		c.Put(page(1, 500))
		c.Put(page(2, 500))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = open(t, Options{Dir: dir})
		k, _ := page(1, 500)
		k2, want := page(2, 500)
		path := c.path(&k)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name == "another page" {
			if b, err = os.ReadFile(c.path(&k2)); err != nil {
				t.Fatal(err)
			}
		} else {
			b = damage(b)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 500)
		if get(c, k, dst) || c.Has(k) || c.Stats().Damaged != 1 {
			t.Errorf("%s: a damaged page was found, or is kept: %+v", name, c.Stats())
		}
		if !get(c, k2, dst) || !bytes.Equal(dst, want) {
			t.Errorf("%s: the other page is gone", name)
		}
		if get(c, k2, dst[:400]) {
			t.Errorf("%s: a page of another length was taken", name)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBounded: the least recently used leave, and the folder keeps its bound.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	const size = 1000
	limit := int64(20 * (size + header))
	c := open(t, Options{Dir: dir, Limit: limit})
	dst := make([]byte, size)
	first, _ := page(0, size)
	wait := func(n int) {
		for range 500 {
			if c.Stats().Written >= n {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%+v", c.Stats())
	}
	for i := range 60 {
		c.Put(page(i, size))
		wait(i + 1)
		old := time.Now().Add(time.Duration(i-1000) * time.Second) // apart, whatever the clock of the file system
		k, _ := page(i, size)
		if err := os.Chtimes(c.path(&k), old, old); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 && !get(c, first, dst) {
			t.Fatalf("page 0 left although it is used, after %d", i)
		}
		if _, held := files(t, dir); held > limit {
			t.Fatalf("%d bytes, %d are the limit", held, limit)
		}
	}
	for i := 1; i < 60; i++ {
		if k, _ := page(i, size); c.Has(k) && i < 40 || !c.Has(k) && i > 50 {
			t.Errorf("page %d: there %v", i, c.Has(k))
		}
	}
	c.Put(page(99, int(limit)))
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "more than the") {
		t.Errorf("a page larger than the limit: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Dir: file}, {Dir: t.TempDir(), Limit: -1}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was opened", o)
		}
	}
}

// TestTooManyWait: what the disk cannot take is dropped and counted, nobody waits.
func TestTooManyWait(t *testing.T) {
	c := open(t, Options{Dir: t.TempDir(), Queue: 2500})
	const n = 50
	for i := range n {
		c.Put(page(i, 1000))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); st.Written+st.Dropped != n || st.Written == 0 {
		t.Errorf("%+v", st)
	}
	c.Put(page(0, 10)) // after the end: nothing
}

// child is a process that writes and reads pages of a folder until it is killed.
func child(dir string) {
	c, err := Open(Options{Dir: dir, Limit: 400_000})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("begun")
	dst := make([]byte, 4000)
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for {
		i := r.IntN(300)
		k, want := page(i, 4000)
		if get(c, k, dst) {
			if !bytes.Equal(dst, want) {
				fmt.Println("wrong bytes")
				os.Exit(1)
			}
		} else {
			c.Put(k, want)
		}
	}
}

// TestKilledAtAnyMoment kills processes that write, several at once, and looks at what they leave.
func TestKilledAtAnyMoment(t *testing.T) {
	if dir := os.Getenv("GRETA_TEST_PREFIX_DIR"); dir != "" {
		child(dir)
	}
	dir := t.TempDir()
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(1, 1))
	for round := range rounds {
		var wait sync.WaitGroup
		for range 2 {
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtAnyMoment$")
			cmd.Env = append(os.Environ(), "GRETA_TEST_PREFIX_DIR="+dir)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			after := time.Duration(r.IntN(40_000)) * time.Microsecond
			wait.Go(func() {
				b := make([]byte, 64)
				n, _ := out.Read(b)
				time.Sleep(after)
				_ = cmd.Process.Kill()
				more, _ := out.Read(b[n:])
				_ = cmd.Wait()
				if said := strings.TrimSpace(string(b[:n+more])); said != "begun" {
					t.Errorf("a process said %q", said)
				}
			})
		}
		wait.Wait()
		if _, size := files(t, dir); size > 400_000+2*25_000+2*4100 {
			t.Errorf("round %d: %d bytes", round, size)
		}
	}
	c := open(t, Options{Dir: dir, Limit: 400_000})
	defer c.Close()
	found := 0
	dst := make([]byte, 4000)
	for i := range 300 {
		k, want := page(i, 4000)
		if get(c, k, dst) {
			if found++; !bytes.Equal(dst, want) {
				t.Fatalf("page %d is wrong", i)
			}
		}
	}
	if st := c.Stats(); st.Damaged != 0 || found == 0 {
		t.Errorf("%d pages found, %+v", found, st)
	}
	// What was cut off is removed once it is old.
	left, _ := files(t, dir)
	for _, path := range left {
		if strings.HasSuffix(path, part) {
			old := time.Now().Add(-2 * stale)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	open(t, Options{Dir: dir}).Close()
	left, _ = files(t, dir)
	for _, path := range left {
		if strings.HasSuffix(path, part) {
			t.Errorf("%s is left", path)
		}
	}
}
