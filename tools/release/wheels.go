package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// wheelBuilder makes a wheel of Python from a program.
const wheelBuilder = "python/build.py"

// pythons are tried in this order: the builder needs 3.11 or later.
var pythons = []string{"python3", "python3.14", "python3.13", "python3.12", "python3.11"}

// wheels makes one for each target that wheels are made for, of the release's own programs.
func (s *source) wheels(binaries map[target]string, work, out string) error {
	var chosen []target
	for _, t := range targets {
		if _, ok := binaries[t]; ok && t.variant == "" {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	python, err := findPython(pythons)
	if err != nil {
		return err
	}
	for _, t := range chosen {
		dir := filepath.Join(work, "wheel_"+t.platform())
		c := exec.Command(python, "-B", filepath.Join(s.root, wheelBuilder), "--platform", t.os+"/"+t.arch, "--program",
			binaries[t], "--out", dir)
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s: %w: %s", t, wheelBuilder, err, text)
		}
		made, err := filepath.Glob(filepath.Join(dir, "*.whl"))
		if err != nil || len(made) != 1 {
			return fmt.Errorf("%s: %s made the wheels %v, expected is one", t, wheelBuilder, made)
		}
		name := filepath.Base(made[0])
		if !strings.HasPrefix(name, "greta-"+s.version+"-") {
			return fmt.Errorf("the wheel is %s: python/greta/_version.py says another version than cmd/greta/version.go, %s",
				name,
				s.version)
		}
		if err := repack(made[0], filepath.Join(out, name)); err != nil {
			return fmt.Errorf("%s: %w", made[0], err)
		}
	}
	return nil
}

// findPython gives a Python that is new enough.
func findPython(names []string) (string, error) {
	for _, name := range names {
		if exec.Command(name, "-c", "import tomllib").Run() == nil {
			return name, nil
		}
	}
	return "", errors.New("wheels are made by Python 3.11 or later, and none is found: install it, or say " +
		"-archives, which " +
		"leaves deb, rpm and wheels out")
}

// repack writes a zip anew: Go's compression gives the same bytes everywhere, Python's those of the zlib that it was
// built with.
func repack(from, to string) (err error) {
	r, err := zip.OpenReader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	return writeFile(to, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, f := range r.File {
			h := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: f.Modified}
			h.SetMode(f.Mode())
			if err := copyEntry(z, h, f); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

func copyEntry(z *zip.Writer, h *zip.FileHeader, f *zip.File) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	w, err := z.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, in)
	}
	return err
}
