package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestReplaced: the old file stays until the new one is whole, and nothing else is left.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "old" {
		t.Errorf("before Commit the file has %q", got)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "new" || names(t, dir) != "a" {
		t.Errorf("%q in %s", got, names(t, dir))
	}
	if err := f.Discard(); err != nil || read(t, path) != "new" {
		t.Errorf("Discard behind Commit: %v", err)
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a second Commit: %v", err)
	}
}

func TestDiscarded(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "a"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	if err := f.Discard(); err != nil || names(t, dir) != "" {
		t.Errorf("%v, left: %s", err, names(t, dir))
	}
	if err := f.Discard(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestModes: a new file has the permissions asked for, whatever CreateTemp gives; a replaced one
// keeps its own.
func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are others there")
	}
	path := filepath.Join(t.TempDir(), "a")
	for _, want := range []fs.FileMode{0o644, 0o600} {
		if err := Write(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || want == 0o644 && info.Mode().Perm() != want ||
			want == 0o600 && info.Mode().Perm() != want {
			t.Errorf("%v, %v; %v is expected", info.Mode(), err, want)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLinks: a symbolic link stays one; devices are written to and never replaced, and not written to by
// Write, behind which are files that greta keeps.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := Write(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", link); err != nil {
		t.Skip(err)
	}
	if err := Write(link, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 || read(t, path) != "new" {
		t.Errorf("%v %v, behind it %q", info, err, read(t, path))
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Skip("no null device")
	}
	f, err := Create(os.DevNull, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("x")
	if err := errors.Join(err, f.Commit()); err != nil {
		t.Error(err)
	}
	if err := Write(os.DevNull, []byte("x"), 0o644); err == nil || !strings.Contains(err.Error(), "found a device") {
		t.Errorf("a file in the place of a device: %v", err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("%s is replaced: %v %v", os.DevNull, info, err)
	}
}

// TestSwept: unfinished files of killed processes go after a day, those of others and young
// ones stay.
func TestSwept(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{".a.1.part": 48 * time.Hour, ".a.2.part": time.Minute,
		".b.3.part": 48 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(filepath.Join(dir, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != ".a.2.part .b.3.part a" {
		t.Errorf("left: %s", got)
	}
}

// TestImpossible: errors name the path, and nothing is left.
func TestImpossible(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "a")} {
		if err := Write(path, []byte("x"), 0o644); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestFailedWrite: what could not be written whole does not take the place of what is there.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	readable, err := os.Open(path) // a file that cannot be written stands for a full disk
	if err != nil {
		t.Fatal(err)
	}
	part := f.File
	f.File = readable
	_, failed := f.Write([]byte("new"))
	f.File = part
	if err := readable.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); failed == nil || !errors.Is(err, failed) {
		t.Errorf("Commit behind %v: %v", failed, err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "old" || names(t, dir) != "a" {
		t.Errorf("%q is at the path (%v), and in the folder: %s", data, err, names(t, dir))
	}
}

// TestMissingFolder: a folder that is not there, or where nothing may be written, is named, and no unfinished file is.
func TestMissingFolder(t *testing.T) {
	dir := t.TempDir()
	missing, file := filepath.Join(dir, "none"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(missing, "a"): "the folder " + missing + " does not exist",
		filepath.Join(file, "a"): file} {
		_, err := Create(path, 0o600)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), mark) {
			t.Errorf("%s: %v", path, err)
		}
		if path == filepath.Join(missing, "a") && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}
