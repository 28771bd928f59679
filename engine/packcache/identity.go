package packcache

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/greta-project/greta/internal/plainfile"
)

// sample is how much of each end of a file is part of its identity: its header
// and, in most formats, some of its metadata and data.
const sample = 64 << 10

// part is how the files of a model in several are named: model-00001-of-00003.gguf.
var part = regexp.MustCompile(`-\d{5}-of-\d{5}\.\w+$`)

// Identity describes the files of a source: the file at path with the other
// parts of the same model, or all files in the folder at path. Path, size, time
// of change, file number and a hash of both ends of each are in it; the rest of
// their bytes is not read.
func Identity(path string) ([]byte, error) {
	given, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(given); err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files, folder, prefix := []string{path}, path, ""
	if !st.IsDir() {
		// A link's own name counts: what it points to may be called by a hash.
		if at := part.FindStringIndex(given); at != nil {
			folder, prefix = filepath.Dir(given), filepath.Base(given[:at[0]])
		}
	}
	if st.IsDir() || prefix != "" {
		entries, err := os.ReadDir(folder) // sorted by name
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			file := filepath.Join(folder, e.Name())
			if prefix != "" && part.ReplaceAllString(e.Name(), "") != prefix {
				continue
			}
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
	f, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	device, number := fileNumber(st)
	fmt.Fprintf(h, "%q %d %d %d %d %d\n", path, st.Size(), st.ModTime().UnixNano(), device, number, changeTime(st))
	for _, at := range []int64{0, max(0, st.Size()-sample)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, sample)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
