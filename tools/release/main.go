// Command release makes what a release consists of, into a folder: archives for every platform with completions and a
// bill of materials, packages for Debian's and Red Hat's kin, a Homebrew formula, a container's context, wheels for
// Python, the installer and the checksums of all. The bytes depend on the commit
// and the Go release alone.
//
//	go run ./tools/release                         everything, into dist/
//	go run ./tools/release -only linux/amd64       what one platform needs
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is a platform that binaries are made for.
type target struct {
	os, arch string
	tags     string // build tags
	variant  string // what the file's name says after the platform
}

// targets are the platforms of a release. The static ones have no GPU backends, which need the platform's loader: they
// run where there is no glibc, and in containers made from nothing.
var targets = []target{
	{os: "linux", arch: "amd64"},
	{os: "linux", arch: "arm64"},
	{os: "linux", arch: "amd64", tags: "nogpu", variant: "_static"},
	{os: "linux", arch: "arm64", tags: "nogpu", variant: "_static"},
	{os: "darwin", arch: "amd64"},
	{os: "darwin", arch: "arm64"},
	{os: "windows", arch: "amd64"},
}

func (t target) String() string { return t.os + "/" + t.arch + strings.Replace(t.variant, "_", "/", 1) }

// platform is the target as file names have it.
func (t target) platform() string { return t.os + "_" + t.arch + t.variant }

func (t target) exe() string {
	if t.os == "windows" {
		return "greta.exe"
	}
	return "greta"
}

// source is the tree that a release is made of.
type source struct {
	root, module string // module is the path that go.mod says
	version      string // without v
	commit       string
	dirty        bool      // the tree has changes that are not committed
	time         time.Time // of the commit
}

func (s *source) url() string { return "https://" + s.module }

// base begins the name of a target's files.
func (s *source) base(t target) string { return "greta_" + s.version + "_" + t.platform() }

func main() {
	var only, out string
	var dirty, bare bool
	flag.StringVar(&only, "only", "", "platforms with commas between them, such as linux/amd64,linux/amd64/static; all "+
		"if empty")
	flag.StringVar(&out, "o", "dist", "folder to write, which must be new or a release's")
	flag.BoolVar(&dirty, "dirty", false, "allow a tree with changes that are not committed")
	flag.BoolVar(&bare, "archives", false, "archives and checksums alone: no deb, rpm or wheel")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "release: %q: no argument is expected, see -h\n", flag.Args())
		os.Exit(2)
	}
	if err := release(only, out, dirty, bare); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// choose gives the targets that a list names, all for an empty one.
func choose(list string) ([]target, error) {
	if list == "" {
		return targets, nil
	}
	var out []target
	for _, name := range strings.Split(list, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			var all []string
			for _, t := range targets {
				all = append(all, t.String())
			}
			return nil, fmt.Errorf("-only %q: no platform of a release; there are %s", name, strings.Join(all, ", "))
		}
		out = append(out, targets[i])
	}
	return out, nil
}

func release(only, out string, dirty, bare bool) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	src, err := readSource(dirty)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(src.root, out)
	}
	if err := emptied(out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "greta-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	fmt.Printf("greta %s of commit %.12s, %s, by %s\n", src.version, src.commit, src.time.Format(time.DateOnly),
		runtime.Version())
	binaries := map[target]string{}
	for _, t := range chosen {
		if binaries[t], err = src.build(t, work); err != nil {
			return err
		}
	}
	completions, err := src.completions(binaries, work)
	if err != nil {
		return err
	}
	for _, t := range chosen {
		if err := src.archive(t, binaries[t], completions, out); err != nil {
			return err
		}
		if t.os == "linux" && t.variant == "" && !bare {
			if err := src.packages(t, binaries[t], completions, work, out); err != nil {
				return err
			}
		}
	}
	if err := src.container(binaries, out); err != nil {
		return err
	}
	if !bare {
		if err := src.wheels(binaries, work, out); err != nil {
			return err
		}
	}
	if err := src.installer(out); err != nil {
		return err
	}
	if err := src.formula(out); err != nil {
		return err
	}
	return writeSums(out)
}

// readSource asks go and git what is released.
func readSource(dirty bool) (*source, error) {
	s := &source{}
	for _, ask := range []struct {
		to   *string
		args []string
	}{
		{&s.root, []string{"go", "list", "-m", "-f", "{{.Dir}}"}},
		{&s.module, []string{"go", "list", "-m"}},
		{&s.commit, []string{"git", "rev-parse", "HEAD"}},
	} {
		text, err := output(ask.args...)
		if err != nil {
			return nil, err
		}
		*ask.to = strings.TrimSpace(text)
	}
	if changed, err := output("git", "-C", s.root, "status", "--porcelain"); err != nil {
		return nil, err
	} else if s.dirty = changed != ""; s.dirty && !dirty {
		return nil, fmt.Errorf("what is not committed cannot be made again by others; commit it, or say -dirty:\n%s", changed)
	}
	seconds, err := output("git", "-C", s.root, "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	if err != nil {
		return nil, err
	}
	s.time = time.Unix(n, 0).UTC()
	text, err := os.ReadFile(filepath.Join(s.root, "cmd/greta/version.go"))
	if err != nil {
		return nil, err
	}
	m := regexp.MustCompile(`(?m)^const release = "([^"]+)"$`).FindSubmatch(text)
	if m == nil {
		return nil, errors.New("cmd/greta/version.go has no line const release = \"…\"")
	}
	s.version = string(m[1])
	tags, err := output("git", "-C", s.root, "tag", "--points-at", "HEAD", "v*")
	if err != nil {
		return nil, err
	}
	if list := strings.Fields(tags); len(list) > 0 && !slices.Contains(list, "v"+s.version) {
		return nil, fmt.Errorf("the commit's tag is %s, but cmd/greta/version.go says %s", list[0], s.version)
	}
	return s, nil
}

// emptied makes the folder, or takes everything out of one that a release made.
func emptied(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	if len(list) > 0 && !slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == sumsName }) {
		return fmt.Errorf("%s has files, but no %s: it is no release's, and is left alone", dir, sumsName)
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// build compiles a target's binary and gives its path.
func (s *source) build(t target, work string) (string, error) {
	path := filepath.Join(work, t.platform(), t.exe())
	begin := time.Now()
	commit := s.commit
	if s.dirty {
		commit += "+dirty"
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", t.tags, "-ldflags",
		"-s -w -X "+s.module+"/bench/environ.stamp="+commit, "-o", path, "./cmd/greta")
	c.Dir, c.Stderr = s.root, os.Stderr
	c.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: go build: %w", t, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	fmt.Printf("  %-22s %5.1f MB, %.0f s\n", t, float64(info.Size())/1e6, time.Since(begin).Seconds())
	return path, nil
}

// shells are those that completions are made for, with the files' names as the shells look for them.
var shells = []struct{ name, file string }{
	{"bash", "greta.bash"}, {"zsh", "_greta"}, {"fish", "greta.fish"}, {"powershell", "greta.ps1"},
}

// completions asks a binary that this machine can run, which is built where none was, and gives them by file name.
func (s *source) completions(binaries map[target]string, work string) (map[string][]byte, error) {
	host := target{os: runtime.GOOS, arch: runtime.GOARCH}
	path, ok := binaries[host]
	if !ok {
		var err error
		if path, err = s.build(host, work); err != nil {
			return nil, err
		}
	}
	out := map[string][]byte{}
	for _, sh := range shells {
		text, err := output(path, "completion", sh.name)
		if err != nil {
			return nil, err
		}
		out[sh.file] = []byte(text)
	}
	return out, nil
}

// output runs a command and gives what it printed.
func output(args ...string) (string, error) {
	c := exec.Command(args[0], args[1:]...)
	var stderr strings.Builder
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(text), nil
}
