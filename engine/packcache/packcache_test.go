//go:build linux

package packcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sample model: sizes that are no multiples of pages or pieces, and an empty one.
func model(seed string) Model {
	return Model{Label: "tiny llama/7B", Identity: []byte(seed), Entries: []Entry{
		{"a", "p1", 100}, {"b", "p1", 2*piece + 77}, {"none", "p2", 0}, {"c", "p2", 4096},
	}}
}

// fillWith fills an entry with bytes that depend on it and on the model.
func fillWith(m Model) func(int, []byte) error {
	return func(i int, dst []byte) error {
		n := min(len(dst), 251) // no divisor of a page
		for j := range n {
			dst[j] = byte(j*7+i) ^ m.Identity[0]
		}
		for ; n > 0 && n < len(dst); n *= 2 {
			copy(dst[n:], dst[:n])
		}
		return nil
	}
}

func check(t *testing.T, f *File, m Model) {
	t.Helper()
	for i, e := range m.Entries {
		want := make([]byte, e.Size)
		if err := fillWith(m)(i, want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Data(i), want) {
			t.Errorf("entry %s differs from what was packed", e.Name)
		}
	}
}

// open maps or builds m in dir and says whether it was built.
func open(t *testing.T, c Config, m Model) bool {
	t.Helper()
	f, err := Open(t.Context(), c, m, fillWith(m))
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, m)
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	return f.Built
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSecondStartMaps(t *testing.T) {
	c := Config{Dir: filepath.Join(t.TempDir(), "not", "there", "yet")}
	if !open(t, c, model("x")) {
		t.Error("the first start found a file")
	}
	if open(t, c, model("x")) {
		t.Error("the second start built again")
	}
	if !open(t, c, model("y")) {
		t.Error("another source found the first one's file")
	}
	if n := len(files(t, c.Dir)); n != 2 {
		t.Errorf("%d files for two models: %v", n, files(t, c.Dir))
	}
}

func TestKey(t *testing.T) {
	base, err := newLayout(model("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Model){
		"identity":       func(m *Model) { m.Identity = []byte("y") },
		"packing":        func(m *Model) { m.Entries[1].Recipe = "p1v2" },
		"size":           func(m *Model) { m.Entries[1].Size++ },
		"name":           func(m *Model) { m.Entries[0].Name = "ab" },
		"moved boundary": func(m *Model) { m.Entries[0].Name, m.Entries[0].Recipe = "ap", "1" },
		"one more":       func(m *Model) { m.Entries = append(m.Entries, Entry{"d", "p", 1}) },
	} {
		m := model("x")
		change(&m)
		l, err := newLayout(m)
		if err != nil {
			t.Fatal(err)
		}
		if l.key == base.key {
			t.Errorf("%s is no part of the key", name)
		}
	}
	m := model("x")
	m.Label = "renamed"
	if l, err := newLayout(m); err != nil || l.key != base.key {
		t.Errorf("a label changes the key, or %v", err)
	}
	m.Entries[0].Size = -1
	if _, err := newLayout(m); err == nil {
		t.Error("a negative size was taken")
	}
	m.Entries[0].Size = 1 << 47
	if _, err := newLayout(m); err == nil {
		t.Error("128 TB were taken")
	}
}

// What is damaged is packed again, and the new file is whole. The ways to damage it are in one piece with their table.
func TestDamage(t *testing.T) {
	lay, err := newLayout(model("x"))
	if err != nil {
		t.Fatal(err)
	}
	patch := func(at int, b ...byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt(b, int64(at))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	size := func(n int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(at int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			patch(at, data[at]^4)(t, path)
			if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		damage  func(*testing.T, string)
		rebuilt bool
	}{
		{"empty", size(0), true},
		{"truncated", size(int64(lay.size) - 1), true},
		{"one page", size(4096), true},
		{"longer", size(int64(lay.size) + 1), true},
		{"magic", patch(0, 'X'), true},
		{"length field", patch(8, 1), true},
		{"key", patch(keyAt, 1, 2, 3), true},
		{"checksum", patch(sumAt+31, 1, 2), true},
		{"table of checksums", patch(fixed+4, 1, 2, 3, 4), true},
		{"power failure: header lost", patch(0, make([]byte, page)...), true},
		{"power failure: page lost", patch(lay.offsets[1]+piece, make([]byte, page)...), true},
		{"a bit of the magic", flip(3), true},
		{"a bit of the key", flip(keyAt + 9), true},
		{"a bit of the header's checksum", flip(sumAt), true},
		{"a bit of a checksum", flip(fixed + 1), true},
		{"a bit behind the checksums", flip(page - 1), true},
		{"a bit of the first entry", flip(lay.offsets[0]), true},
		{"a bit behind the first entry", flip(lay.offsets[0] + 100), true},
		{"a bit between two pieces", flip(lay.offsets[1] + piece - 1), true},
		{"a bit of the last entry", flip(lay.offsets[3] + 4095), true},
		{"nothing", func(*testing.T, string) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Dir: t.TempDir()}
			open(t, cfg, model("x"))
			c.damage(t, files(t, cfg.Dir)[0])
			if built := open(t, cfg, model("x")); built != c.rebuilt {
				t.Errorf("packed again: %v, want %v", built, c.rebuilt)
			}
			if open(t, cfg, model("x")) {
				t.Error("packed a third time")
			}
			all := files(t, cfg.Dir)
			if len(all) != 1 {
				t.Errorf("files: %v", all)
			}
		})
	}
}

// A pipe in the file's place is replaced, and not waited for; a folder with something in it is left.
func TestPipe(t *testing.T) {
	c, m := Config{Dir: t.TempDir()}, model("x")
	open(t, c, m)
	kept := files(t, c.Dir)[0]
	if err := errors.Join(os.Remove(kept), unix.Mkfifo(kept, 0o600)); err != nil {
		t.Fatal(err)
	}
	if !open(t, c, m) || open(t, c, m) {
		t.Error("a pipe was not replaced by a file")
	}
	if err := errors.Join(os.Remove(kept), os.MkdirAll(filepath.Join(kept, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c, m, fillWith(m)); err == nil || !strings.Contains(err.Error(), "found a folder") {
		t.Errorf("a folder in the place of a file: %v", err)
	}
}

func TestBuildFails(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	wrong := errors.New("bad tensor")
	_, err := Open(t.Context(), c, model("x"), func(i int, dst []byte) error {
		if i == 1 {
			return wrong
		}
		return nil
	})
	if !errors.Is(err, wrong) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Open(ctx, c, model("x"), func(int, []byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left := files(t, c.Dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if !open(t, c, model("x")) {
		t.Error("found a file that was never finished")
	}
}

func TestDiskFull(t *testing.T) {
	was, wasFree := reserve, freeBytes
	defer func() { reserve, freeBytes = was, wasFree }()
	c := Config{Dir: t.TempDir()}
	never := func(int, []byte) error { t.Error("packed without room"); return nil }

	reserve = func(*os.File, int64) error { return unix.ENOSPC }
	if _, err := Open(t.Context(), c, model("x"), never); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	reserve = was
	freeBytes = func(string) (int64, error) { return 1 << 20, nil }
	if _, err := Open(t.Context(), c, model("x"), never); err == nil || !strings.Contains(err.Error(), "GB") {
		t.Errorf("error %v", err)
	}
	if left := files(t, c.Dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNoPermission(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dir: filepath.Join(file, "sub")}, model("x"), fillWith(model("x"))); err == nil {
		t.Error("a folder inside a file")
	}
}

func TestEviction(t *testing.T) {
	lay, err := newLayout(model("x"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Dir: t.TempDir(), Limit: int64(3*lay.size + 100)}
	for i, id := range []string{"a", "b", "c"} {
		open(t, c, model(id))
		l, _ := newLayout(model(id))
		used := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(filepath.Join(c.Dir, l.fileName(model(id).Label)), used, used); err != nil {
			t.Fatal(err)
		}
	}
	if open(t, c, model("a")) { // now b is the one not used for longest
		t.Fatal("a was not kept")
	}
	other := filepath.Join(c.Dir, "README")
	if err := os.WriteFile(other, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := Open(t.Context(), c, model("b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(held.Path, old, old); err != nil {
		t.Fatal(err)
	}
	open(t, c, model("d"))
	check(t, held, model("b")) // removed, but mapped still
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		l, _ := newLayout(model(id))
		_, err := os.Stat(filepath.Join(c.Dir, l.fileName(model(id).Label)))
		if kept := err == nil; kept != want {
			t.Errorf("%s kept: %v, want %v", id, kept, want)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	c.Limit = int64(lay.size) - 1
	if _, err := Open(t.Context(), c, model("e"), nil); err == nil {
		t.Error("a file larger than the limit was kept")
	}
	if n := len(files(t, c.Dir)); n != 4 {
		t.Errorf("a file that cannot be kept made others go: %v", files(t, c.Dir))
	}
}

func TestTwoAtOnce(t *testing.T) {
	c, m := Config{Dir: t.TempDir()}, model("x")
	var wg sync.WaitGroup
	var mu sync.Mutex
	built := 0
	for range 6 {
		wg.Go(func() {
			f, err := Open(t.Context(), c, m, func(i int, dst []byte) error {
				time.Sleep(5 * time.Millisecond)
				return fillWith(m)(i, dst)
			})
			if err != nil {
				t.Error(err)
				return
			}
			check(t, f, m)
			mu.Lock()
			if f.Built {
				built++
			}
			mu.Unlock()
			f.Close()
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("built %d times", built)
	}
	if n := len(files(t, c.Dir)); n != 1 {
		t.Errorf("files: %v", files(t, c.Dir))
	}
}

const childDir = "GRETA_TEST_PACKCACHE_CHILD"

// TestChild is what other processes of TestProcesses run.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("runs only as another test's process")
	}
	m := model("x")
	f, err := Open(t.Context(), Config{Dir: dir}, m, func(i int, dst []byte) error {
		if err := fillWith(m)(i, dst); err != nil {
			return err
		}
		if os.Getenv(childDir+"_DIE") != "" && i == 1 {
			fmt.Println("dying")
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		time.Sleep(50 * time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, m)
	fmt.Println("built:", f.Built)
}

// One process is killed while it packs, then two start at once.
func TestProcesses(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Dir: t.TempDir()}
	child := func(env ...string) *exec.Cmd {
		cmd := exec.Command(exe, "-test.run=^TestChild$")
		cmd.Env = append(append(os.Environ(), childDir+"="+c.Dir), env...)
		return cmd
	}
	if out, err := child(childDir + "_DIE=1").Output(); err == nil || !bytes.Contains(out, []byte("dying")) {
		t.Fatalf("the first process was to be killed: %v\n%s", err, out)
	}
	if left := files(t, c.Dir); len(left) != 1 || !strings.HasSuffix(left[0], temporary) {
		t.Fatalf("a killed process leaves %v", left)
	}
	var out [2][]byte
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			var err error
			if out[i], err = child().CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out[i])
			}
		})
	}
	wg.Wait()
	all := string(out[0]) + string(out[1])
	if strings.Count(all, "built: true") != 1 || strings.Count(all, "built: false") != 1 {
		t.Errorf("one should build, the other map:\n%s", all)
	}
	if open(t, c, model("x")) {
		t.Error("nothing was kept")
	}
	if left := files(t, c.Dir); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
}

// What a crash left of another model is removed when room is made.
func TestOrphans(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	orphan, busy := filepath.Join(c.Dir, "o.1"+suffix+temporary), filepath.Join(c.Dir, "b.1"+suffix+temporary)
	if err := os.WriteFile(orphan, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := lockTemporary(busy)
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	defer f.Close()
	open(t, c, model("x"))
	if _, err := os.Stat(orphan); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan is still there: %v", err)
	}
	if _, err := os.Stat(busy); err != nil {
		t.Errorf("a file that is being filled was removed: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	data := bytes.Repeat([]byte("weights "), 40000)
	write := func(b []byte) []byte {
		t.Helper()
		when := time.Unix(1e9, 0)
		if err := errors.Join(os.WriteFile(path, b, 0o600), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
		id, err := Identity(path)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := write(data)
	if again, err := Identity(path); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same file has two identities: %v", err)
	}
	for name, at := range map[string]int{"start": 5, "end": len(data) - 5} {
		b := bytes.Clone(data)
		b[at]++
		if bytes.Equal(first, write(b)) {
			t.Errorf("a change at the %s is not seen", name)
		}
	}
	write(data)
	if err := os.Chtimes(path, time.Unix(1e9, 1), time.Unix(1e9, 1)); err != nil {
		t.Fatal(err)
	}
	if id, err := Identity(path); err != nil || bytes.Equal(first, id) {
		t.Error("a change of time is not seen", err)
	}
	folder, err := Identity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "n"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Identity(dir); err != nil || bytes.Equal(folder, id) {
		t.Error("a new file in a folder is not seen", err)
	}
	parts := filepath.Join(dir, "p")
	if err := os.Mkdir(parts, 0o700); err != nil {
		t.Fatal(err)
	}
	one, two := filepath.Join(parts, "m-00001-of-00002.gguf"), filepath.Join(parts, "m-00002-of-00002.gguf")
	err = errors.Join(os.Symlink(path, one), os.WriteFile(two, []byte("2"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Identity(one)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(two, []byte("3."), 0o600), os.WriteFile(filepath.Join(parts, "other"), nil, 0o600))
	if id, err2 := Identity(one); errors.Join(err, err2) != nil || bytes.Equal(whole, id) {
		t.Error("a change of the second part is not seen", err, err2)
	}
	if id, err := Identity(one); err != nil || os.WriteFile(filepath.Join(parts, "n-00002-of-00002.gguf"), nil,
		0o600) != nil {
		t.Fatal(err)
	} else if again, err := Identity(one); err != nil || !bytes.Equal(id, again) {
		t.Error("another model's part counts", err)
	}
	if _, err := Identity(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing file has an identity")
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		dir, limit string
		in, want   Config
	}{
		{"", "", Config{}, Config{}},
		{"/x", "2GB", Config{}, Config{Dir: "/x", Limit: 2e9}},
		{"/x", "2GB", Config{Dir: "/y", Limit: 3}, Config{Dir: "/y", Limit: 3}},
		{"off", "", Config{}, Config{Off: true}},
		{"OFF", "", Config{Dir: "/y"}, Config{Dir: "/y"}},
	} {
		t.Setenv(DirVariable, c.dir)
		t.Setenv(LimitVariable, c.limit)
		if got, err := c.in.FromEnvironment(); err != nil || got != c.want {
			t.Errorf("%q, %q: %+v, %v, want %+v", c.dir, c.limit, got, err, c.want)
		}
	}
	t.Setenv(LimitVariable, "lots")
	if _, err := (Config{}).FromEnvironment(); err == nil {
		t.Error("a limit of lots")
	}
	for text, want := range map[string]int64{"1": 1, "1.5 kb": 1500, "20G": 20e9, "3TB": 3e12, "7B": 7, "0": 0, "-1": 0,
		"x": 0, "GB": 0, "nan": 0, "1e99": 0} {
		if n, err := ParseBytes(text); n != want || (err == nil) != (want > 0) {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", text, n, err, want)
		}
	}
}

// Only pages that can be read again may be dropped.
func TestDrop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 5*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := mapFile(f, 5*page, false)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(mapped)
	anonymous, err := unix.Mmap(-1, 0, 5*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(anonymous)
	heap := bytes.Repeat([]byte("x"), 5*page)
	copy(anonymous, heap)
	d := NewDropper()
	if !bytes.Equal(mapped, heap) || mappedKB(t, mapped) < 20 {
		t.Fatal("reading a mapping does not map it")
	}
	for name, b := range map[string][]byte{"file": mapped, "anonymous": anonymous, "heap": heap} {
		d.Drop(b[10 : 5*page-10])
		d.Drop(b[:0])
		if name == "file" {
			if kb := mappedKB(t, b); kb > 8 {
				t.Errorf("%d kB of the file are mapped after a drop, want its two ends at most", kb)
			}
		}
		if !bytes.Equal(b, bytes.Repeat([]byte("x"), 5*page)) {
			t.Errorf("%s memory lost its contents", name)
		}
	}
}

// mappedKB is how much of a mapping's memory the process has in its tables. It
// reads nothing of it.
func mappedKB(t *testing.T, b []byte) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, rest, ok := strings.Cut(string(text), fmt.Sprintf("\n%x-", uintptr(unsafe.Pointer(&b[0]))))
	_, rest, ok2 := strings.Cut(rest, "\nRss:")
	if !ok || !ok2 {
		t.Fatal("the mapping is not listed")
	}
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// BenchmarkOpen maps a kept file of 512 MB, whose bytes are compared with their checksums.
func BenchmarkOpen(b *testing.B) {
	m := Model{Label: "large", Identity: []byte("x"), Entries: []Entry{{"a", "p", 512 << 20}}}
	c := Config{Dir: b.TempDir(), Limit: 1 << 40}
	b.SetBytes(512 << 20)
	b.ResetTimer()
	for i := 0; i <= b.N; i++ {
		f, err := Open(b.Context(), c, m, fillWith(m))
		if err != nil {
			b.Skip(err)
		}
		if i == 0 {
			b.ResetTimer()
		}
		if f.Built != (i == 0) {
			b.Fatalf("opened the %dth time: built %v", i, f.Built)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
