package hip

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Kernels that were compiled ahead of time: files named after program, source
// and architecture, whichever compiler made them.

// builtName is the file of a program's code for an architecture. It changes
// with the source, so that old code is never run.
func builtName(p program, arch, source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:12]) + "." + arch + ".co"
}

// loadBuilt gives code that was compiled ahead of time, nil where there is none.
func loadBuilt(dir string, p program, t target, source string) ([]byte, error) {
	if dir == "" {
		return nil, nil
	}
	code, err := os.ReadFile(filepath.Join(dir, builtName(p, t.arch, source)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kernels built ahead of time: %w", err)
	}
	return code, nil
}
