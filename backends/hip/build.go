package hip

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/greta-project/greta/internal/plainfile"
)

// Kernels that were compiled ahead of time: files of the cache's form, named
// after program, source and architecture, whichever compiler made them.

// builtName is the file of a program's code for an architecture. It changes
// with the source, so that old code is never run.
func builtName(p program, arch, source string) string {
	sum := sha256.Sum256([]byte(source))
	return arch + "-" + hex.EncodeToString(sum[:12])
}

// loadBuilt gives code that was compiled ahead of time, nil where there is
// none. A file that is damaged is an error: the folder is the user's.
func loadBuilt(dir string, p program, t target, source string) ([]byte, error) {
	if dir == "" {
		return nil, nil
	}
	path := Cache{Dir: dir}.path(builtName(p, t.arch, source))
	data, err := plainfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kernels built ahead of time: %w", err)
	}
	_, code, ok := parseEntry(data)
	if !ok {
		return nil, fmt.Errorf("kernels built ahead of time: %s is damaged; delete it and build again", filepath.Clean(path))
	}
	return code, nil
}

func storeBuilt(dir string, p program, t target, source string, code []byte) error {
	return Cache{Dir: dir}.store(builtName(p, t.arch, source), program(string(p)+" for "+t.arch), code)
}
