//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// fakeRelease makes a folder as a release's, whose program is a script that says so.
func fakeRelease(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, platform := range []string{"linux_amd64", "darwin_arm64", "linux_amd64_static"} {
		base := "greta_1.2.3_" + platform
		f, err := os.Create(filepath.Join(dir, base+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		list := []entry{{"greta", []byte("#!/bin/sh\n" + script + " " + platform + "\n"), true}}
		if err := writeTar(f, base, list, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "greta_1.2.3_container.tar.gz"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// install runs the script and gives what it said, the program that it installed ("" if none), and whether it failed.
func install(t *testing.T, env ...string) (said, installed string, err error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bin")
	c := exec.Command("sh", filepath.Join(testfiles.Repo(t), "deploy/install.sh"))
	c.Env = append(os.Environ(), "GRETA_DIR="+dir, "GRETA_PLATFORM=linux_amd64")
	c.Env = append(c.Env, env...)
	out, err := c.CombinedOutput()
	data, _ := os.ReadFile(filepath.Join(dir, "greta"))
	left, _ := filepath.Glob(filepath.Join(dir, ".greta*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return string(out), string(data), err
}

func TestInstaller(t *testing.T) {
	dir := fakeRelease(t, "echo greta 1.2.3")
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	from := []string{dir, "file://" + dir}
	if _, err := exec.LookPath("curl"); err == nil {
		from = append(from, server.URL)
	} else if os.Getenv("GRETA_REQUIRE_PACKAGES") != "" {
		t.Error("no curl")
	}
	for _, f := range from {
		said, installed, err := install(t, "GRETA_FROM="+f)
		if err != nil || !strings.Contains(installed, "linux_amd64") || !strings.Contains(said, "greta 1.2.3 linux_amd64: ") {
			t.Errorf("%s: %v %s", f, err, said)
		}
		for _, c := range []struct{ what, env, want string }{
			{"an unknown platform", "GRETA_PLATFORM=linux_riscv64", "names: darwin_arm64 linux_amd64 linux_amd64_static"},
			{"another version", "GRETA_VERSION=1.2.4", "not version 1.2.4"},
			{"no release", "GRETA_FROM=" + f + "/nowhere", "SHA256SUMS cannot be fetched"},
			{"no folder", "GRETA_DIR=/dev/null/bin", "GRETA_DIR says where to"},
		} {
			said, installed, err := install(t, "GRETA_FROM="+f, c.env)
			if err == nil || installed != "" || !strings.Contains(said, c.want) {
				t.Errorf("%s, %s: %v %s", f, c.what, err, said)
			}
		}
		if said, installed, err := install(t, "GRETA_FROM="+f, "GRETA_VERSION=v1.2.3",
			"GRETA_PLATFORM=darwin_arm64"); err != nil ||
			!strings.Contains(installed, "darwin_arm64") {
			t.Errorf("%s: %v %s", f, err, said)
		}
	}
}

func TestInstallerRefuses(t *testing.T) {
	dir := fakeRelease(t, "echo greta 1.2.3")
	archive := filepath.Join(dir, "greta_1.2.3_linux_amd64.tar.gz")
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(archive, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if said, installed, err := install(t, "GRETA_FROM="+dir); err == nil || installed != "" ||
		!strings.Contains(said, "is damaged") || !strings.Contains(said, "nothing was installed") {
		t.Errorf("a flipped bit: %v %s", err, said)
	}
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	if said, installed, err := install(t, "GRETA_FROM="+dir); err == nil || installed != "" ||
		!strings.Contains(said, "linux_amd64.tar.gz cannot be fetched") {
		t.Errorf("a missing file: %v %s", err, said)
	}
	dir = fakeRelease(t, "echo no such loader >&2; exit 1;")
	if said, installed, err := install(t, "GRETA_FROM="+dir); err == nil || installed != "" ||
		!strings.Contains(said, "no such loader") || !strings.Contains(said, "GRETA_PLATFORM=linux_amd64_static may") {
		t.Errorf("a program that does not run: %v %s", err, said)
	}
}

// Where it goes, and what an installation that fails leaves there.
func TestInstallerPlaces(t *testing.T) {
	dir := fakeRelease(t, "echo greta 1.2.3")
	// A folder with blanks, over an older program.
	bin := filepath.Join(t.TempDir(), "my tools", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "greta")
	if err := os.WriteFile(program, []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	said, _, err := install(t, "GRETA_FROM="+dir, "GRETA_DIR="+bin)
	if data, _ := os.ReadFile(program); err != nil || !strings.Contains(string(data), "linux_amd64") ||
		!strings.Contains(said, `"`+program+`" completion`) {
		t.Errorf("a folder with blanks: %v %s", err, said)
	}
	// A broken program does not replace the one that is there.
	broken := fakeRelease(t, "echo no such loader >&2; exit 1;")
	said, _, err = install(t, "GRETA_FROM="+broken, "GRETA_DIR="+bin)
	left, _ := filepath.Glob(filepath.Join(bin, "*"))
	hidden, _ := filepath.Glob(filepath.Join(bin, ".*"))
	if data, _ := os.ReadFile(program); err == nil || !strings.Contains(string(data), "echo greta 1.2.3") ||
		len(left)+len(hidden) != 1 {
		t.Errorf("a broken one over another: %v %s, left are %v %v", err, said, left, hidden)
	}
	// What lies in the way, and an archive that is cut off where its checksum is right.
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "greta"), 0o755); err != nil {
		t.Fatal(err)
	}
	cut := fakeRelease(t, "echo greta 1.2.3")
	archive := filepath.Join(cut, "greta_1.2.3_linux_amd64.tar.gz")
	info, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(archive, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(cut, "SHA256SUMS")); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(cut); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, want string
		env        []string
	}{
		{"a folder of the program's name", "is a folder", []string{"GRETA_FROM=" + dir, "GRETA_DIR=" + folder}},
		{"half an archive", "cannot be unpacked; nothing was installed", []string{"GRETA_FROM=" + cut}},
		{"no HOME", "there is no HOME", []string{"GRETA_FROM=" + dir, "GRETA_DIR=", "HOME="}},
		{"no folder for files", "TMPDIR says where", []string{"GRETA_FROM=" + dir, "TMPDIR=/nowhere"}},
	} {
		said, installed, err := install(t, c.env...)
		if err == nil || installed != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s: %v %s", c.what, err, said)
		}
	}
	if inside, _ := os.ReadDir(filepath.Join(folder, "greta")); len(inside) > 0 {
		t.Errorf("installed into a folder: %v", inside)
	}
}

// What the machine says of itself chooses the archive.
func TestInstallerAsksTheMachine(t *testing.T) {
	dir := fakeRelease(t, "echo greta 1.2.3")
	for _, c := range []struct{ system, machine, want string }{
		{"Darwin", "arm64", "greta 1.2.3 darwin_arm64"},
		{"Darwin", "x86_64", "has no archive for darwin_amd64"},
		{"Linux", "x86_64", "greta 1.2.3 linux_amd64"}, // or the static one, by the loader that is there
		{"Linux", "riscv64", "there is no archive for riscv64"},
		{"SunOS", "x86_64", "there is no archive for SunOS"},
		{"MINGW64_NT-10.0", "x86_64", "windows_amd64.zip"},
	} {
		bin := t.TempDir()
		script := "#!/bin/sh\n[ \"$1\" = -s ] && echo " + c.system + " || echo " + c.machine + "\n"
		if err := os.WriteFile(filepath.Join(bin, "uname"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		said, installed, err := install(t, "GRETA_FROM="+dir, "GRETA_PLATFORM=", "PATH="+bin+":"+os.Getenv("PATH"))
		if !strings.Contains(said, c.want) || (err == nil) != strings.HasPrefix(c.want, "greta") ||
			(err == nil) != (installed != "") {
			t.Errorf("%s %s: %v %s", c.system, c.machine, err, said)
		}
	}
}
