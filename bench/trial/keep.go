package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
)

// What trials gave is kept in a text file, a line a trial, fields divided by tabs, as health checks are. A line that
// cannot be read counts for nothing. Kernels that were refused are not kept: they are tried anew.

// DefaultFile is in the user's folder of caches; "" where there is none.
func DefaultFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "greta", "kernels.txt")
}

const (
	keptHeader = "# greta's trials of kernels of one's own: key, time, backend, device, driver, kernel, results. " +
		"Delete a line to have its kernel tried again.\n"
	keptFields = 7
	keptMost   = 1 << 20 // bytes of a file that is believed
	keptLines  = 500
)

// kept is a line.
type kept struct {
	key     string
	at      time.Time
	about   string // backend, device, driver and kernel
	results []Result
}

// keyOf names a trial: the device with its driver and greta's kernels there, that of one's own with its source, and the
// cases.
func keyOf(dev backends.Device, k *custom.Kernel, cases []wire) (string, error) {
	digest, err := k.Digest()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(struct {
		Format      int
		Device      device
		Own, Digest string
		Cases       []wire
	}{1, identity(dev.Info()), backends.CodeHash(dev, nil, ""), digest, cases})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), err
}

// readKept gives a file's lines; a file that is missing or too long has none.
func readKept(path string) ([]kept, error) {
	lines, err := plainfile.Fields(path, keptMost)
	var all []kept
	for _, f := range lines {
		if len(f) != keptFields {
			continue
		}
		k := kept{key: f[0], about: strings.Join(f[2:6], "\t")}
		at, err := time.Parse(time.RFC3339, f[1])
		if err != nil || json.Unmarshal([]byte(f[6]), &k.results) != nil {
			continue
		}
		k.at = at
		all = append(all, k)
	}
	return all, err
}

// day prints when something was tried; "" for now.
func day(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.DateOnly)
}

// recall gives what a trial of so many cases gave, and when; false where it is not known.
func recall(path, key string, cases int, k *custom.Kernel) ([]Result, time.Time, bool) {
	all, _ := readKept(path) // what cannot be read is tried again
	i := slices.IndexFunc(all, func(o kept) bool { return o.key == key })
	if i < 0 || len(all[i].results) != cases {
		return nil, time.Time{}, false
	}
	for _, r := range all[i].results {
		if _, err := k.Instance(r.Constants); err != nil || r.Shapes < 1 || !(r.TimeUS > 0) || !(r.OwnUS >= 0) {
			return nil, time.Time{}, false
		}
	}
	return all[i].results, all[i].at, true
}

// remember keeps what a trial gave.
func remember(path, key string, dev backends.Device, k *custom.Kernel, results []Result) error {
	all, err := readKept(path)
	if err != nil {
		return err
	}
	i := dev.Info()
	var about []string
	for _, text := range []string{i.Backend, i.Name + " " + i.Level, i.Driver, k.String()} {
		about = append(about, plainfile.Field(text))
	}
	all = slices.DeleteFunc(all, func(o kept) bool { return o.key == key })
	all = append(all, kept{key, time.Now(), strings.Join(about, "\t"), results})
	all = all[max(0, len(all)-keptLines):] // those that are older have had their time
	var b strings.Builder
	b.WriteString(keptHeader)
	for _, o := range all {
		data, err := json.Marshal(o.results)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", o.key, o.at.UTC().Format(time.RFC3339), o.about, data)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(b.String()), 0o644)
}

// tryOnce is Try, or what it gave before on the same device, with the same driver, sources and
// cases: then it says when.
func tryOnce(try func() ([]Result, error), st Settings, k *custom.Kernel, cases []*op.Case) ([]Result, time.Time,
	error) {
	if st.Keep == "" {
		results, err := try()
		return results, time.Time{}, err
	}
	var wires []wire
	for _, c := range cases {
		w, err := wireOf(c)
		if err != nil {
			return nil, time.Time{}, err
		}
		wires = append(wires, w)
	}
	key, err := keyOf(st.Device, k, wires)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !st.Anew {
		if results, at, ok := recall(st.Keep, key, len(cases), k); ok {
			return results, at, nil
		}
	}
	results, err := try()
	if err == nil {
		if err := remember(st.Keep, key, st.Device, k, results); err != nil {
			st.Notify(fmt.Sprintf("the trial of %v is not kept: %v", k, err))
		}
	}
	return results, time.Time{}, err
}
