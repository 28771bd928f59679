package health

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
)

// Records are lines of a text file, fields divided by tabs. A line that cannot
// be read counts for nothing and is dropped when the file is next written.

// key is what a record belongs to.
type key struct{ backend, path, name, level, driver, code string }

func keyOf(i backends.Info, p backends.Path) key {
	field := plainfile.Field
	return key{field(i.Backend), field(p.Name), field(i.Name), field(i.Level), field(i.Driver), field(p.Code)}
}

// device says whether two keys name the same path of the same card: a newer
// record replaces an older one, whatever drivers and kernels they had.
func (k key) device(o key) bool {
	return k.backend == o.backend && k.path == o.path && k.name == o.name && k.level == o.level
}

type record struct {
	key
	verdict string // Passed or Failed
	reason  string
	at      time.Time
}

const (
	recordHeader = "# greta health checks: verdict, time, backend, path, device, level, driver, kernels, reason. " +
		"Delete a line to have its path checked again.\n"
	recordFields = 9
	recordMost   = 1 << 20 // bytes of a file that is believed
	reasonMost   = 500
)

func (r record) line() string {
	reason := plainfile.Field(r.reason)
	if len(reason) > reasonMost {
		reason = strings.ToValidUTF8(reason[:reasonMost], "") + "…"
	}
	return strings.Join([]string{r.verdict, r.at.UTC().Format(time.RFC3339), r.backend, r.path, r.name, r.level, r.driver,
		r.code, reason}, "\t")
}

// read gives a file's records; a file that is missing or no text has none.
func read(path string) ([]record, error) {
	if path == off {
		return nil, nil
	}
	lines, err := plainfile.Fields(path, recordMost)
	var all []record
	for _, f := range lines {
		if len(f) != recordFields || f[0] != Passed && f[0] != Failed {
			continue
		}
		at, err := time.Parse(time.RFC3339, f[1])
		if err != nil {
			continue
		}
		all = append(all, record{key{f[2], f[3], f[4], f[5], f[6], f[7]}, f[0], f[8], at})
	}
	return all, err
}

func find(path string, k key) (record, bool) {
	all, _ := read(path) // what cannot be read is checked again
	i := slices.IndexFunc(all, func(r record) bool { return r.key == k })
	if i < 0 {
		return record{}, false
	}
	return all[i], true
}

// keep writes a record, instead of the one of the same path and card.
func keep(path string, r record) error {
	if path == off {
		return nil
	}
	all, err := read(path)
	if err != nil {
		return err
	}
	all = append(slices.DeleteFunc(all, func(o record) bool { return o.device(r.key) }), r)
	var b strings.Builder
	b.WriteString(recordHeader)
	for _, r := range all {
		b.WriteString(r.line() + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(b.String()), 0o644)
}

// Record is a kept result, for reports.
type Record struct {
	Verdict string    `json:"verdict"`
	Time    time.Time `json:"time"`
	Backend string    `json:"backend"`
	Path    string    `json:"path"`
	Device  string    `json:"device"`
	Level   string    `json:"level,omitempty"`
	Driver  string    `json:"driver,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Records lists what a file holds; empty: DefaultFile.
func Records(path string) ([]Record, error) {
	if path == "" {
		path = DefaultFile()
	}
	all, err := read(path)
	var list []Record
	for _, r := range all {
		list = append(list, Record{r.verdict, r.at, r.backend, r.path, r.name, r.level, r.driver, r.reason})
	}
	return list, err
}
