package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string // with slashes
	data []byte
	exec bool
}

func (e *entry) mode() int64 {
	if e.exec {
		return 0o755
	}
	return 0o644
}

// archive writes a target's archive and its bill of materials.
func (s *source) archive(t target, binary string, completions map[string][]byte, out string) error {
	bill, err := s.bill(t, binary)
	if err != nil {
		return err
	}
	list := []entry{{name: "sbom.cdx.json", data: bill}}
	add := func(name, path string, exec bool) error {
		data, err := os.ReadFile(path)
		list = append(list, entry{name, data, exec})
		return err
	}
	if err := add(t.exe(), binary, true); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "README.md", "README.es.md"} {
		if err := add(name, filepath.Join(s.root, name), false); err != nil {
			return err
		}
	}
	for name, data := range completions {
		list = append(list, entry{name: "completions/" + name, data: data})
	}
	base := s.base(t)
	if err := os.WriteFile(filepath.Join(out, base+".cdx.json"), bill, 0o644); err != nil {
		return err
	}
	if t.os == "windows" {
		return writeFile(filepath.Join(out, base+".zip"), func(w io.Writer) error { return writeZip(w, base, list, s.time) })
	}
	return writeFile(filepath.Join(out, base+".tar.gz"), func(w io.Writer) error {
		return writeTar(w, base, list, s.time)
	})
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func sorted(list []entry) []entry {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return list
}

// writeTar writes a tar.gz whose bytes depend on the entries and the time alone. The entries lie in the folder.
func writeTar(w io.Writer, folder string, list []entry, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(z)
	for _, e := range sorted(list) {
		h := &tar.Header{Name: folder + "/" + e.name, Mode: e.mode(), Size: int64(len(e.data)), ModTime: at,
			Format: tar.FormatUSTAR}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(e.data); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return z.Close()
}

// writeZip is writeTar for a zip.
func writeZip(w io.Writer, folder string, list []entry, at time.Time) error {
	z := zip.NewWriter(w)
	for _, e := range sorted(list) {
		h := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode()))
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// sumsName is the file of checksums.
const sumsName = "SHA256SUMS"

// sum gives a file's SHA-256 in hexadecimal.
func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// writeSums writes the checksums of everything in the folder, as sha256sum -c reads them.
func writeSums(out string) error {
	list, err := os.ReadDir(out) // sorted by name
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range list {
		if e.Name() == sumsName {
			continue
		}
		h, err := sum(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", h, e.Name())
	}
	fmt.Printf("%s: %d files\n", out, len(list))
	return os.WriteFile(filepath.Join(out, sumsName), []byte(b.String()), 0o644)
}
