package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Wheels are made of the release's programs, for the targets that are not static, with the same bytes each time, and
// stand in the list of checksums.
// In one piece: what is made once is looked at from all sides.
func TestWheels(t *testing.T) {
	if _, err := findPython(pythons); err != nil {
		if os.Getenv("GRETA_REQUIRE_PACKAGES") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := testSource(t)
	text, err := os.ReadFile(filepath.Join(s.root, "python/greta/_version.py"))
	if err != nil {
		t.Fatal(err)
	}
	s.version = string(regexp.MustCompile(`__version__ = "(.+)"`).FindSubmatch(text)[1])
	binaries := map[target]string{}
	for _, at := range []target{targets[1], targets[2], targets[6]} { // arm64, static, Windows
		binaries[at] = filepath.Join(t.TempDir(), at.exe())
		if err := os.WriteFile(binaries[at], programOf(at), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		if err := s.wheels(binaries, t.TempDir(), dirs[i]); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadDir(dirs[0])
	if err != nil || len(list) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	programs := ""
	for _, e := range list {
		a, err := os.ReadFile(filepath.Join(dirs[0], e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dirs[1], e.Name()))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: made twice it differs, %v", e.Name(), err)
		}
		z, err := zip.NewReader(bytes.NewReader(a), int64(len(a)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			if strings.HasPrefix(f.Name, "greta/bin/") {
				in, err := f.Open()
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(in)
				if err != nil {
					t.Fatal(err)
				}
				_, text, _ := strings.Cut(string(data), "\n")
				programs += f.Name + " " + f.Mode().String() + " " + text + "\n"
				if err := in.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if last := z.File[len(z.File)-1].Name; !strings.HasSuffix(last, ".dist-info/RECORD") {
			t.Errorf("%s ends with %s", e.Name(), last)
		}
	}
	const want = "greta/bin/greta -rwxr-xr-x program of linux/arm64\n" +
		"greta/bin/greta.exe -rwxr-xr-x program of windows/amd64\n"
	if programs != want {
		t.Errorf("%s", programs)
	}
	if err := writeSums(dirs[0]); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dirs[0], sumsName))
	if err != nil || bytes.Count(sums, []byte(".whl\n")) != 2 {
		t.Errorf("%s %v", sums, err)
	}
	if err := s.wheels(map[target]string{targets[0]: filepath.Join(dirs[1], "nothing")}, t.TempDir(),
		dirs[1]); err == nil ||
		!strings.Contains(err.Error(), "a file is expected") {
		t.Errorf("of no program: %v", err)
	}
	file := filepath.Join(t.TempDir(), "text")
	for content, want := range map[string]string{"": "this is no program for linux", "#!/bin/sh\n": "no program for linux",
		string(programOf(targets[1])): "is not for amd64", "\x7fELF" + strings.Repeat("\x00", 14) + ">\x00": "is not greta",
		string(programOf(targets[6])): "no program for linux"} {
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.wheels(map[target]string{targets[0]: file}, t.TempDir(), dirs[1]); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("of %.20q: %v; expected is %s", content, err, want)
		}
	}
	if _, err := findPython([]string{"no-such-python"}); err == nil || !strings.Contains(err.Error(), "-archives") {
		t.Errorf("without Python: %v", err)
	}
	s.version = "99.9"
	if err := s.wheels(binaries, t.TempDir(), dirs[1]); err == nil || !strings.Contains(err.Error(), "_version.py says") {
		t.Errorf("of another version: %v", err)
	}
	if err := s.wheels(map[target]string{targets[3]: "static"}, t.TempDir(), dirs[1]); err != nil {
		t.Errorf("static targets alone: %v", err)
	}
}

// programOf is the least that the builder takes for a program of a target: the header, what Go says of greta, a text.
func programOf(t target) []byte {
	var head string
	switch t.os {
	case "linux":
		head = "\x7fELF" + strings.Repeat("\x00", 14) + map[string]string{"amd64": "\x3e\x00", "arm64": "\xb7\x00"}[t.arch]
	case "windows":
		head = "MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00PE\x00\x00\x64\x86"
	}
	return []byte(head + "path\t" + "github.com/greta-project/greta" + "/cmd/greta\nprogram of " + t.String())
}
