// Package tune finds the fastest variant of each kernel at the shapes that a model
// has, and remembers it. Variants are tried in a child process, so that one that
// hangs or crashes is rejected and the rest goes on; each is checked against the
// float64 reference before it is timed.
package tune

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
)

// Format names the file's kind and version.
const Format = "greta-tuned/1"

// File is what tuning found, as text that can be shared.
type File struct {
	Format  string  `yaml:"format" json:"format"`
	Entries []Entry `yaml:"entries" json:"entries"`
}

// Key is for what an entry holds.
type Key struct {
	Backend string `yaml:"backend" json:"backend"`
	Device  string `yaml:"device" json:"device"`
	Level   string `yaml:"level,omitempty" json:"level,omitempty"`
	Driver  string `yaml:"driver,omitempty" json:"driver,omitempty"`
	Threads int    `yaml:"threads,omitempty" json:"threads,omitempty"`
	// Mode are the roundings that the device was allowed, such as "quant f16":
	// other kernels run then.
	Mode  string `yaml:"mode,omitempty" json:"mode,omitempty"`
	Op    string `yaml:"op" json:"op"`
	Shape string `yaml:"shape" json:"shape"` // Bucket's
}

// Entry is what was tried of one operator at one bucket of shapes.
type Entry struct {
	Key  `yaml:",inline"`
	Best string `yaml:"best" json:"best"` // the variant to use
	// Gain is how many times as fast the best is as the default, 1 for the default itself.
	Gain  float64 `yaml:"gain" json:"gain"`
	Tried []Trial `yaml:"tried" json:"tried"` // the default first
}

// Trial is one variant's result.
type Trial struct {
	Variant string  `yaml:"variant" json:"variant"`
	Code    string  `yaml:"code" json:"code"`                           // backends.Hashed's hash, or the program's
	Seconds float64 `yaml:"seconds,omitempty" json:"seconds,omitempty"` // median
	N       int     `yaml:"n,omitempty" json:"n,omitempty"`
	// Rejected says why the variant must not be used: a wrong result, a hang, a crash.
	Rejected string `yaml:"rejected,omitempty" json:"rejected,omitempty"`
}

// KeyOf is the key of a node on a device.
func KeyOf(dev backends.Device, n *graph.Node) Key {
	i, r := dev.Info(), op.Rounding(dev)
	var mode []string
	for _, m := range []struct {
		on   bool
		name string
	}{
		{r.Quant, "quant"}, {r.BF16, "bf16"}, {r.F16, "f16"}, {backends.TakesOptedIn(dev, n), "f8"},
	} {
		if m.on {
			mode = append(mode, m.name)
		}
	}
	return Key{i.Backend, i.Name, i.Level, i.Driver, i.Threads, strings.Join(mode, " "), n.Op.Name, Bucket(n)}
}

// Bucket names the shapes of a node's operands so that similar ones share a name:
// every size is rounded up to a power of two, types are exact. An operand that is
// left out is "-".
func Bucket(n *graph.Node) string {
	var parts []string
	for i, v := range n.In {
		name := fmt.Sprint("in", i)
		if i < len(n.Op.Sig.In) {
			name = n.Op.Sig.In[i].Name
		}
		if v == nil {
			continue
		}
		var dims []string
		for _, d := range v.Shape {
			dims = append(dims, fmt.Sprint(upper(d)))
		}
		parts = append(parts, fmt.Sprintf("%s:%s[%s]", name, v.Type, strings.Join(dims, ",")))
	}
	return strings.Join(parts, " ")
}

// upper is the least power of two that is not below n.
func upper(n int) int {
	if n <= 1 {
		return max(n, 0)
	}
	return 1 << bits.Len(uint(n-1))
}

// Path is where the file lies unless the user names one: greta/tuned.yaml in
// the user's configuration folder.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no place for what tuning finds: %w; name a file by --tuned", err)
	}
	return filepath.Join(dir, "greta", "tuned.yaml"), nil
}

// Load reads a file. A missing one is empty, and its error fs.ErrNotExist.
func Load(path string) (*File, error) {
	f := &File{Format: Format}
	data, err := readText(path)
	if err != nil {
		return f, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("%s: it is no file of greta tune: %w; move it away, or name another by --tuned (off: none)",
			path, err)
	}
	if f.Format != Format {
		return nil, fmt.Errorf("%s: its format is %q, this greta knows %q; greta tune --tuned FILE starts a new one", path,
			f.Format, Format)
	}
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.Op == "" || e.Shape == "" || e.Best == "" || !slices.ContainsFunc(e.Tried, func(t Trial) bool {
			return t.Variant == e.Best && t.Rejected == ""
		}) {
			return nil, fmt.Errorf("%s: entry %d (%s %s): the best, %q, is not among those that were tried and not rejected",
				path, i+1, e.Op, e.Shape, e.Best)
		}
	}
	return f, nil
}

// mostText bounds the file: tens of thousands of entries.
const mostText = 64 << 20

// readText reads a file that is text, and no device that never ends.
func readText(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostText+1))
	if err == nil && len(data) > mostText {
		err = fmt.Errorf("%s: it has more than %d MB, which is no file of greta tune", path, mostText>>20)
	}
	return data, err
}

// Find gives the entry of a key, nil where there is none.
func (f *File) Find(k Key) *Entry {
	for i := range f.Entries {
		if f.Entries[i].Key == k {
			return &f.Entries[i]
		}
	}
	return nil
}

// Put adds an entry, or replaces that of its key.
func (f *File) Put(e Entry) {
	if have := f.Find(e.Key); have != nil {
		*have = e
		return
	}
	f.Entries = append(f.Entries, e)
	sorting.Sort(f.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Shape, b.Shape))
	})
}

// Update reads a file, lets f change it, and puts the new text in its place; other
// processes wait meanwhile.
func Update(ctx context.Context, path string, change func(*File)) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	held, err := guard.Lock(ctx, "tuned"+strings.ReplaceAll(abs, string(filepath.Separator), "-"), nil)
	if err != nil {
		return err
	}
	defer held.Unlock()
	f, err := Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	change(f)
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	const header = "# Fastest variants of kernels by shape. greta tune writes this file, greta run reads\n# it; it can " +
		"be shared between machines of the same device and driver.\n"
	return atomicfile.Write(path, append([]byte(header), text...), 0o644)
}

// codeOf identifies the code of a node's kernel in a variant.
func codeOf(dev backends.Device, n *graph.Node, variant string) string {
	if h := backends.CodeHash(dev, n, variant); h != "" {
		return h
	}
	return environ.ProgramHash()
}
