package tune

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/fakedev"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// TestMain lets the test binary be the child.
func TestMain(m *testing.M) {
	if list := os.Getenv("GRETA_TEST_TUNE"); list != "" {
		err := Serve(context.Background(), os.Stdin, os.Stdout, func() (backends.Device, error) {
			return fakedev.Open(1, strings.Split(list, ","), "x")
		})
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "tune") // for locks
	if err != nil {
		panic(err)
	}
	os.Setenv("GRETA_LOCKS", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func linear(t *testing.T, m, k, n int, typ tensor.Type) *op.Case {
	t.Helper()
	c, err := op.New(ops.Linear, op.Request{Sizes: map[string]int{"m": m, "k": k, "n": n}, Type: typ, Float: tensor.F32})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func device(t *testing.T, hash string, variants ...string) *fakedev.Device {
	t.Helper()
	d, err := fakedev.Open(1, variants, hash)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	t.Setenv("GRETA_TEST_TUNE", strings.Join(variants, ","))
	return d
}

func options(d backends.Device) Options {
	return Options{Device: d, Child: child.Command{os.Args[0]}, Limit: time.Minute, Rounds: 2, Samples: 10,
		MinTime: time.Millisecond, Warm: true}
}

func task(t *testing.T, d backends.Device, c *op.Case) Task {
	t.Helper()
	tasks := Tasks(d, []*op.Case{c})
	if len(tasks) != 1 {
		t.Fatalf("%d tasks", len(tasks))
	}
	return tasks[0]
}

// TestBadVariants: one that hangs, one that crashes and one that is wrong are
// rejected with the reason, and the rest goes on to the best.
func TestBadVariants(t *testing.T) {
	d := device(t, "a", "plain", "hang", "twice", "crash", "wrong", "tenth")
	opt := options(d)
	opt.Limit = 2 * time.Second
	var emitted []string
	opt.Emit = func(r *record.Result) { emitted = append(emitted, r.Config+" "+string(r.Verdict)) }
	e, changed, err := Run(t.Context(), task(t, d, linear(t, 3, 256, 300, tensor.F16)), nil, opt)
	if err != nil || !changed {
		t.Fatal(err, changed)
	}
	if e.Best != "tenth" || e.Gain < 2 || e.Gain > 100 {
		t.Errorf("the best is %s, %.2f times as fast", e.Best, e.Gain)
	}
	for i, want := range []string{"", "hung", "", "crash|ended with exit status 3: fault in the kernel",
		"the result is wrong: relative L2 1.00e+00", ""} {
		tr := e.Tried[i]
		ok := tr.Rejected == "" && tr.N >= 20 && tr.Seconds > 0
		if want != "" {
			ok = tr.N == 0 && slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool {
				return strings.Contains(tr.Rejected, w)
			})
		}
		if !ok || tr.Code != "a-"+tr.Variant {
			t.Errorf("%+v, expected %q", tr, want)
		}
	}
	if want := []string{"plain ok", "hang failed", "twice ok", "crash failed", "wrong failed",
		"tenth ok"}; !slices.Equal(emitted, want) {
		t.Errorf("%q, expected %q", emitted, want)
	}
}

// TestNoGoodVariant: where every variant is rejected that is an error, and none is best.
func TestNoGoodVariant(t *testing.T) {
	d := device(t, "a", "wrong", "crash")
	e, _, err := Run(t.Context(), task(t, d, linear(t, 1, 64, 64, tensor.F32)), nil, options(d))
	if err == nil || e.Best != "" || !strings.Contains(err.Error(), "every variant was rejected") {
		t.Errorf("%v %+v", err, e)
	}
}

// TestDefaultStays: without a noticeable gain the default is the best.
func TestDefaultStays(t *testing.T) {
	d := device(t, "a", "plain", "same", "twice")
	e, _, err := Run(t.Context(), task(t, d, linear(t, 1, 256, 512, tensor.F32)), nil, options(d))
	if err != nil {
		t.Fatal(err)
	}
	if e.Best == "twice" {
		t.Errorf("%+v", e)
	}
	base := make([]float64, 30)
	near, far := slices.Clone(base), slices.Clone(base)
	for i := range base {
		base[i] = 1 + 1e-4*float64(i)
		near[i], far[i] = 0.99*base[i], 0.95*base[i]
	}
	v := []string{"d", "x"}
	if best, gain := choose(v, map[string][]float64{"d": base, "x": near}); best != "d" || gain != 1 {
		t.Errorf("one percent: %s %g", best, gain)
	}
	if best, gain := choose(v, map[string][]float64{"d": base, "x": far}); best != "x" || gain < 1.05 {
		t.Errorf("five percent: %s %g", best, gain)
	}
	if best, _ := choose(v, map[string][]float64{"d": base[:5], "x": far[:2]}); best != "d" {
		t.Errorf("two samples were enough for %s", best)
	}
	if best, _ := choose(v, map[string][]float64{"x": far}); best != "x" {
		t.Errorf("a default that was rejected: %s", best)
	}
}

// TestNewVariant: a variant that was added is tried against the best and the default;
// the others stay as they are. Changed code is tried again, and --again tries all.
func TestNewVariant(t *testing.T) {
	c := linear(t, 1, 256, 512, tensor.F32)
	d := device(t, "a", "plain", "twice", "hang2")
	opt := options(d)
	tried := func(d *fakedev.Device, have *Entry) (Entry, []string) {
		t.Helper()
		var names []string
		opt.Device = d
		opt.Emit = func(r *record.Result) { names = append(names, r.Config) }
		e, changed, err := Run(t.Context(), task(t, d, c), have, opt)
		if err != nil || changed != (len(names) > 0) {
			t.Fatal(err, changed)
		}
		return e, names
	}
	first, names := tried(d, nil)
	if len(names) != 3 {
		t.Errorf("%q", names)
	}
	if again, names := tried(d, &first); len(names) > 0 || !reflect.DeepEqual(again, first) {
		t.Errorf("nothing is new, and %q were tried", names)
	}
	d = device(t, "a", "plain", "twice", "hang2", "tenth")
	second, names := tried(d, &first)
	if want := []string{"plain", "tenth"}; first.Best == "plain" && !slices.Equal(names, want) {
		t.Errorf("with one variant more %q were tried, expected %q", names, want)
	}
	if second.Best != "tenth" || len(second.Tried) != 4 || !reflect.DeepEqual(second.Tried[1], first.Tried[1]) {
		t.Errorf("%+v", second)
	}
	d = device(t, "b", "plain", "twice", "hang2", "tenth")
	if _, names := tried(d, &second); len(names) != 4 {
		t.Errorf("with other code %q were tried", names)
	}
	opt.Again = true
	d = device(t, "a", "plain", "twice", "hang2", "tenth")
	if _, names := tried(d, &second); len(names) != 4 {
		t.Errorf("again: %q", names)
	}
}

func TestInterrupted(t *testing.T) {
	d := device(t, "a", "plain", "hang")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	if _, _, err := Run(ctx, task(t, d, linear(t, 1, 64, 64, tensor.F32)), nil, options(d)); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	if time.Since(start) > time.Minute {
		t.Error("an ended context was not heeded")
	}
}

// TestWire: every operator's case comes through to the child as it was.
func TestWire(t *testing.T) {
	for _, o := range ops.All() {
		c, err := op.New(o, op.Request{Sizes: map[string]int{}, Float: tensor.F32})
		if err != nil {
			t.Errorf("%s: %v", o.Name, err)
			continue
		}
		w, err := toWire(c)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		var back wireCase
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		got, err := back.toCase()
		if err != nil {
			t.Fatal(err)
		}
		a, b := c.Node, got.Node
		same := a.AttrText() == b.AttrText() && Bucket(a) == Bucket(b) && len(a.Out) == len(b.Out) && a.Float == b.Float &&
			c.First == got.First && slices.Equal(c.Strides, got.Strides)
		for i, v := range a.In {
			same = same && (v == nil) == (b.In[i] == nil) && (v == nil ||
				v.Type == b.In[i].Type && slices.Equal(v.Shape, b.In[i].Shape) && v.Kind == b.In[i].Kind && v.Name == b.In[i].Name)
		}
		for i, v := range a.Out {
			same = same && v.Type == b.Out[i].Type && slices.Equal(v.Shape, b.Out[i].Shape)
		}
		if !same {
			t.Errorf("%s came back as another case", o.Name)
		}
	}
}

func TestBuckets(t *testing.T) {
	d := device(t, "a", "plain", "tenth")
	cases := []*op.Case{linear(t, 5, 256, 300, tensor.F16), linear(t, 8, 256, 512, tensor.F16),
		linear(t, 9, 256, 512, tensor.F16), linear(t, 8, 256, 512, tensor.Q8_0)}
	tasks := Tasks(d, cases)
	if len(tasks) != 3 || tasks[0].Case != cases[1] {
		t.Errorf("%d tasks, the first is %v", len(tasks), tasks[0].Case.Params)
	}
	if want := "x:f32[8,256] w:f16[512,256]"; tasks[0].Shape != want {
		t.Errorf("%q, expected %q", tasks[0].Shape, want)
	}
	if len(Tasks(ref.New(), cases)) != 0 {
		t.Error("a device without variants has tasks")
	}
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 4097: 8192} {
		if got := upper(n); got != want {
			t.Errorf("%d is in bucket %d", n, got)
		}
	}
}

// TestFileAndChooser: what is written is read, a device uses it at the shapes of its
// bucket and nowhere else, and only as long as its code is the same.
// In one piece: one file, written, read, chosen from, and outdated.
func TestFileAndChooser(t *testing.T) {
	d := device(t, "a", "plain", "tenth")
	c := linear(t, 5, 256, 300, tensor.F16)
	path := filepath.Join(t.TempDir(), "new", "tuned.yaml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	e := Entry{Key: KeyOf(d, c.Node), Best: "tenth", Gain: 2, Tried: []Trial{{Variant: "plain", Code: "a-plain",
		Seconds: 2e-6, N: 5}, {Variant: "tenth", Code: "a-tenth", Seconds: 1e-6, N: 5}}}
	for range 2 { // the second replaces the first
		if err := Update(t.Context(), path, func(f *File) { f.Put(e) }); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Entries) != 1 || !reflect.DeepEqual(f.Entries[0], e) {
		t.Errorf("%+v", f.Entries)
	}
	name := func(d backends.Device, c *op.Case) string {
		t.Helper()
		k, err := d.Kernel(c.Node)
		if err != nil {
			t.Fatal(err)
		}
		return k.Name()[strings.LastIndex(k.Name(), ".")+1:]
	}
	ch, err := Apply(d, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := name(d, linear(t, 7, 255, 500, tensor.F16)); got != "tenth" {
		t.Errorf("in the bucket: %s", got)
	}
	if got := name(d, linear(t, 9, 255, 500, tensor.F16)); got != "plain" {
		t.Errorf("in another: %s", got)
	}
	if tuned, forced := ch.Choices(); len(tuned) != 1 || len(forced) != 0 {
		t.Errorf("%v %v", tuned, forced)
	}
	ch.Close()
	if got := name(d, c); got != "plain" {
		t.Errorf("after Close: %s", got)
	}
	changed := device(t, "b", "plain", "tenth")
	if _, err := Apply(changed, f, nil); err != nil {
		t.Fatal(err)
	}
	if got := name(changed, c); got != "plain" {
		t.Errorf("with other code: %s", got)
	}
	if ch, err = Apply(d, f, []string{"linear=plain"}); err != nil {
		t.Fatal(err)
	}
	if got := name(d, c); got != "plain" || ch.Check() != nil {
		t.Errorf("forced: %s, %v", got, ch.Check())
	}
	if ch, err = Apply(d, nil, []string{"linear=none"}); err != nil {
		t.Fatal(err)
	}
	name(d, c)
	if err := ch.Check(); err == nil || !strings.Contains(err.Error(), "linear=none") {
		t.Errorf("a variant that nothing has: %v", err)
	}
	for _, force := range []string{"linear", "=x", "linear="} {
		if _, err := Apply(d, nil, []string{force}); err == nil {
			t.Errorf("--config %s was taken", force)
		}
	}
	if _, err := Apply(ref.New(), nil, []string{"linear=x"}); err == nil {
		t.Error("a device without variants took one")
	}
	if ch, err := Apply(ref.New(), f, nil); ch != nil || err != nil || ch.Check() != nil {
		t.Error(ch, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "a list": "- 1", "unknown": "format: greta-tuned/1\ncars: 1\n",
		"newer": "format: greta-tuned/9\nentries: []\n",
		"best was rejected": "format: greta-tuned/1\nentries:\n- {op: linear, shape: s, best: a, tried: [{variant: a, " +
			"rejected: hung}]}\n",
		"best is unknown": "format: greta-tuned/1\nentries:\n- {op: linear, shape: s, best: a, tried: [{variant: b}]}\n",
	} {
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEndlessFile: what has no end is refused, and not read until memory is full.
func TestEndlessFile(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(),
		"/dev/zero: expected a regular file, found a device") {
		t.Errorf("%v", err)
	}
}
