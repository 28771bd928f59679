package custom

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
)

// Digest is a hash of all that a kernel is made of: the file that describes it, and the source or binary of every
// combination of constants with the files beside it that they include.
func (k *Kernel) Digest() (string, error) {
	h := sha256.New()
	text, err := plainfile.Read(k.File)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s %d\n%s", k.Name, len(text), text)
	seen := map[string]bool{}
	for _, v := range k.Variants() {
		i, err := k.Instance(v)
		if err != nil {
			return "", err
		}
		if seen[i.Path] {
			continue
		}
		seen[i.Path] = true
		fmt.Fprintf(h, "%s %d\n", filepath.Base(i.Path), len(i.Code))
		h.Write(i.Code)
		if e := k.Ending(); e == ".hip" || e == ".comp" {
			addIncluded(h, i.Path, string(i.Code), seen)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// addIncluded hashes the files that a source includes and that lie beside it.
func addIncluded(h hash.Hash, path, text string, seen map[string]bool) {
	for line := range strings.Lines(text) {
		_, name, ok := strings.Cut(line, "include")
		if !ok || !strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		name = filepath.Join(filepath.Dir(path), strings.Trim(strings.TrimSpace(name), "\"<>"))
		own, err := plainfile.Read(name)
		if err != nil || seen[name] { // greta's own header, or none: the trial says so
			continue
		}
		seen[name] = true
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(name), len(own), own)
		addIncluded(h, name, string(own), seen)
	}
}
