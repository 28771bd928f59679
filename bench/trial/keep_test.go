package trial

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// driven is a device whose driver a test changes.
type driven struct {
	*cpu.Device
	driver, code string
}

func (d *driven) Info() backends.Info {
	i := d.Device.Info()
	i.Driver = d.driver
	return i
}

func (d *driven) CodeHash(*graph.Node, string) string { return d.code }

// A trial is made once, and again where anything is another: driver, greta's kernels, description, source, a file that
// it includes, cases; or when it is asked for. A refusal is not kept.
// In one piece: each change is made behind those before it.
func TestKept(t *testing.T) {
	plain, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("k.yaml", "kernels:\n")
	write("k.hip", "#include \"k.h\"\n#include \"prelude.h\"\n")
	write("k.h", "// first\n")
	k := &custom.Kernel{Name: "k", File: filepath.Join(dir, "k.yaml"), Op: "silu", Source: "k.hip",
		Constants: []custom.Constant{{Name: "B", Values: []int{1, 2}}}}
	dev := &driven{plain, "driver 1", "hash 1"}
	st := Settings{Device: dev, Keep: filepath.Join(dir, "new", "kernels.txt"),
		Notify: func(text string) { t.Error(text) }}
	caseOf := func(n int) []*op.Case {
		node := &graph.Node{Op: ops.Table.Lookup("silu"), Block: -1,
			In: []*graph.Value{{Name: "x", Type: tensor.F32, Shape: []int{n, 8}}}}
		if err := infer(node); err != nil {
			t.Fatal(err)
		}
		return []*op.Case{{Node: node}}
	}
	cases, want := caseOf(1), []Result{{Constants: map[string]int{"B": 2}, Shapes: 9, TimeUS: 3, OwnUS: 4}}
	trials := 0
	expect := func(what string, made bool, st Settings, cases []*op.Case) {
		t.Helper()
		before := trials
		got, at, err := tryOnce(func() ([]Result, error) { trials++; return want, nil }, st, k, cases)
		if err != nil || !reflect.DeepEqual(got, want) || made != (trials > before) || made != at.IsZero() {
			t.Errorf("%s: %+v of %v, %v, a trial was made: %v", what, got, at, err, trials > before)
		}
	}
	refused := &Refused{k, "wrong"}
	if _, _, err := tryOnce(func() ([]Result, error) { return nil, refused }, st, k, cases); !errors.Is(err, refused) {
		t.Error(err)
	}
	expect("first", true, st, cases)
	expect("again", false, st, cases)
	anew, without := st, st
	anew.Anew, without.Keep = true, ""
	expect("anew", true, anew, cases)
	expect("without a file", true, without, cases)
	expect("behind those", false, st, cases)
	expect("other cases", true, st, caseOf(2))
	expect("both are kept", false, st, cases)
	for what, change := range map[string]func(){
		"driver": func() { dev.driver = "driver 2" }, "greta's kernels": func() { dev.code = "hash 2" },
		"description": func() { write("k.yaml", "kernels: \n") }, "source": func() { write("k.hip", "#include \"k.h\"\n") },
		"included file": func() { write("k.h", "// second\n") },
	} {
		change()
		expect(what, true, st, cases)
		expect(what+", again", false, st, cases)
	}

	// A line that is damaged or deleted is made again, the others stand.
	data, err := os.ReadFile(st.Keep)
	if err != nil || !strings.HasPrefix(string(data), keptHeader) || strings.Count(string(data), "\n") != 8 {
		t.Fatalf("%s %v", data, err)
	}
	for _, broken := range []string{strings.ReplaceAll(string(data), `"shapes":9`, `"shapes":0`),
		strings.ReplaceAll(string(data), "\t[", "\t["+"["), keptHeader, "\x00\t\n", strings.Repeat("x", keptMost+1)} {
		if err := os.WriteFile(st.Keep, []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
		expect("a broken line", true, st, cases)
		expect("behind it", false, st, cases)
	}
	// What cannot be kept is said, and the trial counts all the same.
	said := ""
	st.Keep, st.Notify = dir, func(text string) { said = text }
	expect("a folder", true, st, cases)
	if !strings.Contains(said, "is not kept") {
		t.Errorf("it said %q", said)
	}
	k.Source = "missing.hip"
	if _, _, err := tryOnce(nil, st, k, cases); err == nil || !strings.Contains(err.Error(), "source: ") {
		t.Errorf("without a source: %v", err)
	}
}
