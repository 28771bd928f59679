package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/testfiles"
)

func testSource(t *testing.T) *source {
	return &source{root: testfiles.Repo(t), module: "example.org/acme/greta", version: "1.2.3", commit: "abc",
		time: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}
}

// The same entries in another order give the same bytes, and what comes out is what went in.
func TestArchivesAreReproducible(t *testing.T) {
	at := testSource(t).time
	list := []entry{{"greta", []byte("program"), true}, {"completions/_greta", []byte("text"), false}}
	turned := []entry{list[1], list[0]}
	for name, write := range map[string]func(io.Writer, string, []entry, time.Time) error{"tar": writeTar,
		"zip": writeZip} {
		var a, b, c bytes.Buffer
		if err := errors.Join(write(&a, "f", list, at), write(&b, "f", turned, at.Local()),
			write(&c, "f", list, at.Add(2*time.Second))); err != nil {
			t.Fatal(err)
		}
		if name == "tar" && !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: the order of the entries shows", name)
		}
		if bytes.Equal(a.Bytes(), c.Bytes()) {
			t.Errorf("%s: the time is not kept", name)
		}
		got := map[string]string{}
		if name == "tar" {
			z, err := gzip.NewReader(&a)
			if err != nil {
				t.Fatal(err)
			}
			for r := tar.NewReader(z); ; {
				h, err := r.Next()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				data, _ := io.ReadAll(r)
				got[h.Name+h.FileInfo().Mode().String()] = string(data)
			}
		} else {
			r, err := zip.NewReader(bytes.NewReader(a.Bytes()), int64(a.Len()))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.File {
				in, err := f.Open()
				if err != nil {
					t.Fatal(err)
				}
				data, _ := io.ReadAll(in)
				got[f.Name+f.Mode().String()] = string(data)
			}
		}
		if len(got) != 2 || got["f/greta-rwxr-xr-x"] != "program" || got["f/completions/_greta-rw-r--r--"] != "text" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestBill(t *testing.T) {
	s := testSource(t)
	info := &debug.BuildInfo{GoVersion: "go1.26.8 X:none", Deps: []*debug.Module{{Path: "gopkg.in/yaml.v3",
		Version: "v3.0.1",
		Sum:     "h1:fxVm/GzAzEWqLHuvctI91KS9hhNmmWOoWu0XTYJS7CA="}}}
	data, err := s.billOf(targets[0], info)
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		BomFormat, SpecVersion string
		Metadata               struct{ Timestamp string }
		Components             []struct {
			Purl   string
			Hashes []struct{ Alg, Content string }
		}
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	const hash = "7f1566fc6cc0cc45aa2c7baf72d23dd4a4bd84d99963a85abd44d72ed4f2ec20"
	if b.BomFormat != "CycloneDX" || b.SpecVersion != "1.6" || b.Metadata.Timestamp != "2026-01-02T03:04:06Z" ||
		len(b.Components) != 2 || b.Components[0].Purl != "pkg:golang/std@1.26.8" ||
		b.Components[1].Purl != "pkg:golang/gopkg.in/yaml.v3@v3.0.1" || len(b.Components[1].Hashes) != 1 ||
		len(b.Components[1].Hashes[0].Content) != len(hash) || len(b.Dependencies) != 1 ||
		len(b.Dependencies[0].DependsOn) != 2 {
		t.Errorf("%s", data)
	}
	info.Deps[0].Replace = &debug.Module{Path: "../here"}
	if _, err := s.billOf(targets[0], info); err == nil || !strings.Contains(err.Error(), "../here") {
		t.Errorf("a replaced module: %v", err)
	}
}

// go install PATH@VERSION refuses a module whose go.mod replaces or excludes others.
func TestGoInstallTakesTheModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testfiles.Repo(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b.*`).Find(text); found != nil {
		t.Errorf("go.mod has %q: go install would refuse the module", found)
	}
}

func TestFormula(t *testing.T) {
	s := testSource(t)
	text, err := s.formulaOf(func(name string) (string, bool) {
		return "sum-of-" + name, strings.Contains(name, "darwin_arm64")
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `  on_macos do
    on_arm do
      url "https://example.org/acme/greta/releases/download/v1.2.3/greta_1.2.3_darwin_arm64.tar.gz"
      sha256 "sum-of-greta_1.2.3_darwin_arm64.tar.gz"
    end
  end
`
	if !strings.Contains(string(text), want) || strings.Contains(string(text), "on_linux") ||
		bytes.Contains(text, []byte("<no value>")) {
		t.Errorf("%s", text)
	}
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		if os.Getenv("GRETA_REQUIRE_PACKAGES") != "" {
			t.Fatal("no ruby")
		}
		return
	}
	c := exec.Command(ruby, "-c")
	c.Stdin = bytes.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// What a package has comes from files that are there, and its unit starts the program that the package installs.
func TestPackageConfig(t *testing.T) {
	s, dir := testSource(t), t.TempDir()
	binary := filepath.Join(dir, "greta")
	if err := os.WriteFile(binary, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := s.packageConfig(targets[0], binary, map[string][]byte{"greta.bash": nil, "_greta": nil,
		"greta.fish": nil}, dir)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Maintainer string
		Contents   []struct{ Src, Dst, Packager string }
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	if c.Maintainer != "acme <acme@users.noreply.github.com>" || len(c.Contents) != 9 {
		t.Errorf("%s", data)
	}
	zsh := map[string]string{} // it looks in Debian's folder on Debian alone
	for _, f := range c.Contents {
		if f.Packager != "" {
			zsh[f.Packager] = f.Dst
		}
		if _, err := os.Stat(f.Src); err != nil {
			t.Error(err)
		}
	}
	if zsh["deb"] != "/usr/share/zsh/vendor-completions/_greta" || zsh["rpm"] != "/usr/share/zsh/site-functions/_greta" {
		t.Errorf("zsh's completions: %v", zsh)
	}
	unit, err := os.ReadFile(filepath.Join(dir, "greta.service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/bin/greta serve")) ||
		bytes.Contains(unit, []byte("/usr/local")) {
		t.Errorf("%v %s", err, unit)
	}
}

func TestWrongWishes(t *testing.T) {
	if _, err := choose("linux/amd64,plan9/386"); err == nil || !strings.Contains(err.Error(), "windows/amd64") {
		t.Errorf("an unknown platform: %v", err)
	}
	if list, err := choose("linux/arm64/static"); err != nil || len(list) != 1 || list[0].tags != "nogpu" {
		t.Errorf("%v %v", list, err)
	}
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err == nil {
		t.Error("a folder of other files was emptied")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err != nil {
		t.Error(err)
	}
	s := testSource(t)
	if err := s.installer(dir); err == nil || !strings.Contains(err.Error(), "rename-module") {
		t.Errorf("an installer of another project: %v", err)
	}
}
