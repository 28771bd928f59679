package packcache

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sample is how much of each end of a file is part of its identity: its header
// and, in most formats, some of its metadata and data.
const sample = 64 << 10

// Identity describes the files of a source: the file at path, or all files in
// the folder at path. Path, size, time of change, file number and a hash of
// both ends of each are in it; the rest of their bytes is not read.
func Identity(path string) ([]byte, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if st.IsDir() {
		entries, err := os.ReadDir(path) // sorted by name
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			file := filepath.Join(path, e.Name())
			if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	h := sha256.New()
	for _, file := range files {
		if err := addFile(h, file); err != nil {
			return nil, err
		}
	}
	return h.Sum(nil), nil
}

func addFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	device, number := fileNumber(st)
	fmt.Fprintf(h, "%q %d %d %d %d\n", path, st.Size(), st.ModTime().UnixNano(), device, number)
	for _, at := range []int64{0, max(0, st.Size()-sample)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, sample)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
