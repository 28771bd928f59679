// Package exp keeps the record of experiments: what was supposed, what was
// changed, what came of it, and whether it was kept. The ledger is a text file
// for people that only grows; what an experiment's state is follows from it.
package exp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
)

// Event is an entry of the ledger.
type Event struct {
	Time   time.Time
	Kind   string // "new", "run", "keep", "reject"
	Name   string // of the experiment
	Fields []Field
}

// Field is a named text of an event; it may have several lines.
type Field struct{ Name, Text string }

// Get gives a field's text, "" where there is none.
func (e *Event) Get(name string) string {
	for _, f := range e.Fields {
		if f.Name == name {
			return f.Text
		}
	}
	return ""
}

// all gives the texts of the fields of a name.
func (e *Event) all(name string) []string {
	var out []string
	for _, f := range e.Fields {
		if f.Name == name {
			out = append(out, f.Text)
		}
	}
	return out
}

// text writes an event: a heading, a line a field, further lines of a field indented.
func (e *Event) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s %s %s\n", e.Time.UTC().Format(time.RFC3339), e.Kind, e.Name)
	for _, f := range e.Fields {
		lines := strings.Split(strings.TrimRight(f.Text, "\n"), "\n")
		if len(lines) == 1 {
			fmt.Fprintf(&b, "%s: %s\n", f.Name, lines[0])
			continue
		}
		fmt.Fprintf(&b, "%s:\n", f.Name)
		for _, l := range lines {
			b.WriteString(strings.TrimRight("    "+l, " ") + "\n")
		}
	}
	return b.String() + "\n"
}

// Status is what became of an experiment.
type Status string

// The states.
const (
	Open     Status = "open"
	Kept     Status = "kept"
	Rejected Status = "rejected"
)

// Experiment is what the ledger says of one.
type Experiment struct {
	Name       string    `json:"name"`
	Created    time.Time `json:"created"`
	Hypothesis string    `json:"hypothesis"`
	Bench      []string  `json:"bench"`            // arguments of greta bench
	Change     []string  `json:"change,omitempty"` // arguments of the changed side alone: the forced configuration
	// hash of the source's changes, where it is the code that is changed
	Code         string    `json:"code,omitempty"`
	Baseline     string    `json:"baseline,omitempty"` // commit or program; "" the clean commit of this program
	Precondition string    `json:"precondition,omitempty"`
	Status       Status    `json:"status"`
	Why          string    `json:"why,omitempty"` // it was kept or rejected
	Decided      time.Time `json:"decided,omitzero"`
	Runs         []Run     `json:"runs"`
}

// Run is what one run of an experiment found.
type Run struct {
	Time    time.Time `json:"time"`
	Correct bool      `json:"correct"`
	Slower  int       `json:"slower"` // benchmarks that were, by the comparison's test
	Summary string    `json:"summary"`
	Details string    `json:"details,omitempty"` // the table, and what the profile says
}

// same says whether two experiments try the same thing.
func (x *Experiment) same(y *Experiment) bool { return x.fingerprint() == y.fingerprint() }

// fingerprint identifies what is tried, whatever it is called.
func (x *Experiment) fingerprint() string {
	h := sha256.New()
	for _, part := range [][]string{plainArgs(x.Bench), plainArgs(x.Change), {x.Code}} {
		for _, s := range part {
			fmt.Fprintf(h, "%d:%s", len(s), s)
		}
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// plainArgs puts arguments into one order and spelling, so that --k 256 --m=1 is the same as
// --m 1 --k=256: first what is no flag, then the flags by name, those of a name as they came.
// Of a flag that takes no value what follows it is taken for one, which changes
// nothing for the same arguments.
func plainArgs(args []string) []string {
	var words, flags []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") {
			words = append(words, a)
			continue
		}
		if !strings.Contains(a, "=") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			a += "=" + args[i]
		}
		if old, ok := strings.CutPrefix(a, "--type="); ok { // what --dtype was called
			a = "--dtype=" + old
		}
		flags = append(flags, a)
	}
	sorting.Sort(flags, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	return append(words, flags...)
}

// Ledger is the file.
type Ledger struct {
	path   string
	events []Event
	list   []*Experiment
}

// DefaultPath is where the ledger lies unless the user names one: beside the store
// of results.
func DefaultPath(store string) string {
	return filepath.Join(filepath.Dir(store), "experiments.md")
}

// Read reads a ledger; a missing file is an empty one.
func Read(path string) (*Ledger, error) {
	l := &Ledger{path: path}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file: the ledger of experiments is a text file", path)
	}
	if err != nil {
		return nil, err
	}
	data, err := plainfile.Read(path)
	if err != nil {
		return nil, err
	}
	return l, l.parse(string(data))
}

// parse reads the text. Lines before the first heading are for people.
func (l *Ledger) parse(text string) error {
	var e *Event
	finish := func() error {
		if e == nil {
			return nil
		}
		for i := range e.Fields {
			e.Fields[i].Text = strings.TrimRight(e.Fields[i].Text, "\n")
		}
		l.events = append(l.events, *e)
		err := l.take(e)
		e = nil
		return err
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		fail := func(err error) error { return fmt.Errorf("%s:%d: %w", l.path, n, err) }
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			if err := finish(); err != nil {
				return fail(err)
			}
			parts := strings.Fields(rest)
			if len(parts) != 3 {
				return fail(fmt.Errorf("a heading is ## TIME new|run|keep|reject NAME, not %q", line))
			}
			at, err := time.Parse(time.RFC3339, parts[0])
			if err != nil {
				return fail(err)
			}
			e = &Event{Time: at, Kind: parts[1], Name: parts[2]}
			continue
		}
		switch name, value, ok := strings.Cut(line, ":"); {
		case e == nil || line == "" && len(e.Fields) == 0:
		case strings.HasPrefix(line, "    ") || line == "":
			if len(e.Fields) == 0 {
				return fail(fmt.Errorf("an indented line belongs to a field, and none came before"))
			}
			f := &e.Fields[len(e.Fields)-1]
			f.Text += strings.TrimPrefix(line, "    ") + "\n"
		case ok && !strings.ContainsAny(name, " \t"):
			e.Fields = append(e.Fields, Field{name, ""})
			if v := strings.TrimSpace(value); v != "" {
				e.Fields[len(e.Fields)-1].Text = v + "\n"
			}
		default:
			return fail(fmt.Errorf("NAME: TEXT or an indented line is expected, not %q", line))
		}
	}
	if err := finish(); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// take lets an event change the experiments.
func (l *Ledger) take(e *Event) error {
	x := l.Find(e.Name)
	if e.Kind == "new" {
		if x != nil {
			return fmt.Errorf("the experiment %s is there twice", e.Name)
		}
		l.list = append(l.list, &Experiment{Name: e.Name, Created: e.Time, Hypothesis: e.Get("hypothesis"),
			Bench: e.all("bench"), Change: e.all("change"),
			Code: e.Get("code"), Baseline: e.Get("baseline"), Precondition: e.Get("precondition"), Status: Open, Runs: []Run{}})
		return nil
	}
	if x == nil {
		return fmt.Errorf("%s of an experiment %s that was never begun", e.Kind, e.Name)
	}
	switch e.Kind {
	case "run":
		x.Runs = append(x.Runs, Run{e.Time, e.Get("correct") == "yes", slower(e.Get("slower")), e.Get("summary"),
			e.Get("details")})
	case "keep":
		x.Status, x.Why, x.Decided = Kept, e.Get("because"), e.Time
	case "reject":
		x.Status, x.Why, x.Decided = Rejected, e.Get("because"), e.Time
	default:
		return fmt.Errorf("no event is called %q; there are new, run, keep, reject", e.Kind)
	}
	return nil
}

// List gives the experiments, oldest first.
func (l *Ledger) List() []*Experiment { return l.list }

// Find gives an experiment by name, nil where there is none.
func (l *Ledger) Find(name string) *Experiment {
	for _, x := range l.list {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// header opens a new ledger.
const header = `# Experiments

What was supposed, what was changed, what came of it. greta exp appends to this
file; nothing in it is ever changed.

`

// append writes an event behind the others.
func (l *Ledger) append(e Event) error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	text := e.text()
	if err == nil && info.Size() == 0 {
		text = header + text
	}
	if err == nil {
		_, err = f.WriteString(text) // in one call: a whole event or none
	}
	return errlist.Join(err, f.Close())
}

// RejectedBefore says that the same thing was tried, and rejected.
type RejectedBefore struct{ Old *Experiment }

func (e *RejectedBefore) Error() string {
	return fmt.Sprintf("the same change was rejected as %s on %s: %s. What has changed since? Say it by --precondition",
		e.Old.Name, e.Old.Decided.Format(time.DateOnly), e.Old.Why)
}

// update changes the ledger while no other process does.
func update(ctx context.Context, path string, f func(*Ledger) (Event, error)) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	held, err := guard.Lock(ctx, "experiments"+strings.ReplaceAll(abs, string(filepath.Separator), "-"), nil)
	if err != nil {
		return err
	}
	defer held.Unlock()
	l, err := Read(path)
	if err != nil {
		return err
	}
	e, err := f(l)
	if err != nil {
		return err
	}
	e.Time = time.Now()
	for i, field := range e.Fields {
		e.Fields[i].Text = strings.Trim(field.Text, "\n")
	}
	e.Fields = slices.DeleteFunc(e.Fields, func(f Field) bool { return f.Text == "" })
	return l.append(e)
}

// New begins an experiment. What was rejected before needs a precondition that no
// earlier one of the same change had; else its error is a *RejectedBefore.
func New(ctx context.Context, path string, x Experiment) error {
	return update(ctx, path, func(l *Ledger) (Event, error) {
		if err := x.Check(); err != nil {
			return Event{}, err
		}
		if old := l.Find(x.Name); old != nil {
			return Event{}, fmt.Errorf("an experiment %s exists since %s (%s); choose another name", x.Name,
				old.Created.Format(time.DateOnly), old.Status)
		}
		var rejected *Experiment
		for _, old := range l.list {
			if !old.same(&x) {
				continue
			}
			if old.Status == Open {
				return Event{}, fmt.Errorf("%s tries the same and is still open: run it, keep it or reject it", old.Name)
			}
			if old.Status == Rejected {
				rejected = old
			}
		}
		if rejected != nil && (strings.TrimSpace(x.Precondition) == "" ||
			slices.ContainsFunc(l.list, func(old *Experiment) bool {
				return old.same(&x) && plain(old.Precondition) == plain(x.Precondition)
			})) {
			return Event{}, &RejectedBefore{rejected}
		}
		e := Event{Kind: "new", Name: x.Name, Fields: []Field{{"hypothesis", oneLine(x.Hypothesis)}}}
		for _, a := range x.Bench {
			e.Fields = append(e.Fields, Field{"bench", a})
		}
		for _, a := range x.Change {
			e.Fields = append(e.Fields, Field{"change", a})
		}
		e.Fields = append(e.Fields, Field{"code", x.Code}, Field{"baseline", x.Baseline},
			Field{"precondition", oneLine(x.Precondition)})
		return e, nil
	})
}

// plain is a text without its case and spacing.
func plain(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Check refuses what could not be written or read again; New does too.
func (x *Experiment) Check() error {
	bad := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
	}
	switch {
	case x.Name == "" || strings.ContainsFunc(x.Name, bad):
		return fmt.Errorf("name %q: letters, digits, -, _ and . are possible", x.Name)
	case strings.TrimSpace(x.Hypothesis) == "":
		return fmt.Errorf("an experiment begins with a hypothesis: what should get faster, and why?")
	case len(x.Bench) == 0:
		return fmt.Errorf("an experiment needs a benchmark, such as op linear --m 1 --k 4096 --n 4096")
	case len(x.Change) == 0 && x.Code == "":
		return fmt.Errorf("nothing is changed: force a configuration, or change the source")
	}
	for _, a := range append(slices.Clone(x.Bench), x.Change...) {
		if strings.TrimSpace(a) != a || a == "" || strings.ContainsAny(a, "\n\r") {
			return fmt.Errorf("the argument %q begins or ends with a space, is empty, or has several lines", a)
		}
	}
	return nil
}

// open gives an experiment that is still open.
func (l *Ledger) open(name string) (*Experiment, error) {
	x := l.Find(name)
	if x == nil {
		return nil, fmt.Errorf("no experiment is called %s; greta exp list lists them", name)
	}
	if x.Status != Open {
		return nil, fmt.Errorf("%s was %s on %s: %s", name, x.Status, x.Decided.Format(time.DateOnly), x.Why)
	}
	return x, nil
}

// Begin gives an experiment that may be run.
func Begin(path, name string) (*Experiment, error) {
	l, err := Read(path)
	if err != nil {
		return nil, err
	}
	return l.open(name)
}

// AddRun notes what a run found.
func AddRun(ctx context.Context, path, name string, r Run) error {
	return update(ctx, path, func(l *Ledger) (Event, error) {
		if _, err := l.open(name); err != nil {
			return Event{}, err
		}
		correct := "no"
		if r.Correct {
			correct = "yes"
		}
		return Event{Kind: "run", Name: name, Fields: []Field{{"correct", correct},
			{"slower", strconv.Itoa(r.Slower)}, {"summary", oneLine(r.Summary)}, {"details", r.Details}}}, nil
	})
}

// slower reads how many benchmarks were; ledgers from before it was noted say nothing, which is none.
func slower(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// Decide keeps or rejects an experiment. Only one whose last run was correct can be
// kept, and, unless despite says so, one in which nothing became slower; one that was never run can be neither.
func Decide(ctx context.Context, path, name string, status Status, because string, despite bool) error {
	return update(ctx, path, func(l *Ledger) (Event, error) {
		x, err := l.open(name)
		if err != nil {
			return Event{}, err
		}
		switch {
		case strings.TrimSpace(because) == "":
			return Event{}, fmt.Errorf("say why by --because: the next one will want to know")
		case len(x.Runs) == 0:
			return Event{}, fmt.Errorf("%s was never run: greta exp run %s", name, name)
		case status == Kept && !x.Runs[len(x.Runs)-1].Correct:
			return Event{}, fmt.Errorf("the last run of %s gave wrong results: it cannot be kept", name)
		case status == Kept && !despite && x.Runs[len(x.Runs)-1].Slower > 0:
			return Event{}, fmt.Errorf("the last run of %s found it slower (%s): reject it, or keep it --despite-slower, where "+
				"--because says what it is good for", name, x.Runs[len(x.Runs)-1].Summary)
		}
		kind := "keep"
		if status == Rejected {
			kind = "reject"
		}
		return Event{Kind: kind, Name: name, Fields: []Field{{"because", oneLine(because)}}}, nil
	})
}
