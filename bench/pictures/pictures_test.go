package pictures

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

func newRun(backend string, day int) *record.Run {
	started := time.Date(2026, 3, day, 12, 0, 0, 0, time.UTC)
	return &record.Run{ID: record.NewID(started), Kind: "op", Started: started, Status: "complete",
		Env: record.Env{Device: "Card <1>", Backend: backend, Driver: "1.0", Commit: fmt.Sprint("c", day)}}
}

func result(run *record.Run, bench string, seconds float64, set func(*record.Result)) store.Entry {
	r := record.Result{Bench: bench, Clock: record.DeviceClock, Verdict: record.OK,
		Samples: []float64{seconds, 1.01 * seconds, 0.99 * seconds, seconds, seconds, 1.02 * seconds, seconds, seconds}}
	if set != nil {
		set(&r)
	}
	return store.Entry{Result: r, Run: run}
}

// sample is a store with something for every picture.
func sample() []store.Entry {
	var out []store.Entry
	for _, backend := range []string{"hip", "vulkan"} {
		run := newRun(backend, 1)
		for i := range 12 {
			bytes := 16384 * math.Exp2(float64(i))
			ns := 20e-9
			if bytes > 256<<10 {
				ns = 140e-9
			}
			at := func(r *record.Result) { r.Params = map[string]string{"bytes": fmt.Sprint(int(bytes))} }
			out = append(out, result(run, "platform/latency", ns, at))
			out = append(out, result(run, "platform/cache", bytes/(1e12*(1+1/float64(i+1))), func(r *record.Result) {
				at(r)
				r.Bytes, r.WorkingSet, r.Roofs.LastCache = bytes, bytes, 8<<20
			}))
		}
		for day := range 2 {
			run := newRun(backend, day+2)
			for i, op := range []string{"linear", "rmsnorm", "attention"} {
				out = append(out, result(run, "op/"+op, 1e-5*float64(i+1)*(1+0.1*float64(day)), func(r *record.Result) {
					r.Params = map[string]string{"m": "1", "k": "4096"}
					r.Cache, r.Bytes, r.Flops = record.Cold, 1e7, 1e7*float64(i+1)
					r.Roofs = record.Roofs{ReadGBs: 4800, GFlops: 6e4, MeasuredReadGBs: 4500, MeasuredGFlops: 5e4}
					r.Metrics = map[string]float64{"launches_in_decode": float64(4 * (i + 1))}
				}))
			}
		}
	}
	return out
}

func TestEveryKindIsDrawn(t *testing.T) {
	pics, err := Draw("", sample())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range pics {
		count[p.Name]++
		if p.Title == "" || p.Caption == "" || len(p.Head) == 0 || len(p.Rows) == 0 {
			t.Errorf("%s: it has no title, caption or figures: %+v", p.Name, p)
		}
		for _, r := range p.Rows {
			if len(r) != len(p.Head) {
				t.Errorf("%s: %d columns in %q, %d in the head", p.Name, len(r), r, len(p.Head))
			}
		}
		var b bytes.Buffer
		if err := p.Write(&b, "svg"); err != nil {
			t.Fatal(err)
		}
		if d := xml.NewDecoder(bytes.NewReader(b.Bytes())); true {
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: the SVG is no XML: %v", p.Name, err)
				}
			}
		}
		if strings.Contains(b.String(), "var(") || strings.Contains(b.String(), "NaN") {
			t.Errorf("%s: the file holds a page's variables, or no numbers", p.Name)
		}
		b.Reset()
		if err := p.Write(&b, "png"); err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(&b); err != nil || img.Bounds().Dx() < 800 {
			t.Errorf("%s: PNG of %v: %v", p.Name, img.Bounds(), err)
		}
		if err := p.Write(io.Discard, "gif"); err == nil {
			t.Error("a gif is written")
		}
	}
	want := map[string]int{"bandwidth": 2, "latency": 1, "roofline": 2, "step": 2, "devices": 1, "history": 2}
	for name, n := range want {
		if count[name] != n {
			t.Errorf("%d pictures of %s, want %d", count[name], name, n)
		}
	}
}

func row(p *Picture, begins string) []string {
	for _, r := range p.Rows {
		if strings.HasPrefix(r[0], begins) {
			return r
		}
	}
	return nil
}

func TestFigures(t *testing.T) {
	entries := sample()
	one := func(name string) *Picture {
		t.Helper()
		pics, err := Draw(name, entries)
		if err != nil || len(pics) == 0 {
			t.Fatalf("%s: %d pictures, %v", name, len(pics), err)
		}
		return pics[0]
	}
	// linear takes 11 µs in the last run: of 1e7 bytes at 4800 GB/s, 2.083 µs.
	if r := row(one("roofline"), "linear"); r == nil || r[4] != "18.9 % (memory)" {
		t.Errorf("roofline: %q", r)
	}
	// The newest run: 4·11, 8·22, 12·33 µs.
	if r := one("step").Rows; len(r) != 3 || r[2][0] != "decode" || r[2][1] != "linear" || r[2][3] != "44" ||
		r[2][4] != "7.1 %" {
		t.Errorf("step: %q", r)
	}
	if c := one("bandwidth").Caption; !strings.Contains(c, "8 MiB (last cache)") ||
		!strings.Contains(c, "362 KiB (latency steps)") {
		t.Errorf("bandwidth: %s", c)
	}
	if r := one("history").Rows; len(r) != 6 || r[1][4] != "1.100" || r[0][2] != "c2" {
		t.Errorf("history: %q", r)
	}
}

// A result that is not OK must not be drawn, and is listed with its reason.
func TestBadResultsAreListed(t *testing.T) {
	entries := sample()
	before, _ := Draw("latency", entries)
	n := len(before[0].Rows)
	entries[0].Verdict, entries[0].Reason = record.Refused, "faster than <light>"
	after, _ := Draw("latency", entries)
	if len(after[0].Rows) != n-1 {
		t.Errorf("%d figures of %d after one was refused", len(after[0].Rows), n)
	}
	var b bytes.Buffer
	if err := Page(&b, "A & B", entries, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"faster than &lt;light&gt;", "<title>A &amp; B</title>", "prefers-color-scheme: dark",
		"var(--s0)", "Card &lt;1&gt;, hip"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	for _, never := range []string{"http://", "https://", "<link", "src="} {
		if s := strings.ReplaceAll(b.String(), `"http://www.w3.org/2000/svg"`,
			""); strings.Contains(strings.ReplaceAll(s, `xmlns:xlink="http://www.w3.org/1999/xlink"`, ""), never) {
			t.Errorf("the page asks for something: it holds %q", never)
		}
	}
}

// TestOneResult draws stores of a single result, whose axes span nothing: an operator under a
// roof of memory alone, as the CPU has it, and one size of the pointer chase.
func TestOneResult(t *testing.T) {
	run := newRun("cpu", 1)
	for name, e := range map[string]store.Entry{
		"roofline": result(run, "op/linear", 1e-5, func(r *record.Result) {
			r.Cache, r.Bytes, r.Flops, r.Roofs = record.Cold, 1e5, 0.99e5, record.Roofs{MeasuredReadGBs: 11, MeasuredGFlops: 12}
		}),
		"latency": result(run, "platform/latency", 2e-8, func(r *record.Result) {
			r.Params = map[string]string{"bytes": "1"}
		}),
	} {
		pics, err := Draw(name, []store.Entry{e})
		if err != nil || len(pics) != 1 {
			t.Fatalf("%s: %d pictures, %v", name, len(pics), err)
		}
		for _, kind := range []string{"svg", "png"} {
			var b bytes.Buffer
			if err := pics[0].Write(&b, kind); err != nil || b.Len() == 0 {
				t.Errorf("%s as %s: %d bytes, %v", name, kind, b.Len(), err)
			}
		}
		if p := pics[0].plot; !(p.X.Min > 0 && p.X.Max > p.X.Min) {
			t.Errorf("%s: the axis goes from %g to %g", name, p.X.Min, p.X.Max)
		}
	}
}

// TestLegendOfDevices: one benchmark of three devices leaves their names a place of their own.
func TestLegendOfDevices(t *testing.T) {
	var all []store.Entry
	for i, device := range []string{"cpu", "hip", "vulkan"} {
		all = append(all, result(newRun(device, i), "op/linear", 1e-5, func(*record.Result) {}))
	}
	pics, err := Draw("devices", all)
	if err != nil || len(pics) != 1 {
		t.Fatalf("%d pictures, %v", len(pics), err)
	}
	p := &probe{texts: map[string]xy{}}
	pics[0].plot.draw(p, pics[0].width, pics[0].height)
	if len(p.fills) != 7 {
		t.Fatalf("%d areas, want the paper, three bars and their signs", len(p.fills))
	}
	for _, bar := range p.fills[1:4] {
		for _, sign := range p.fills[4:] {
			if topOf(bar) < bottomOf(sign) {
				t.Errorf("a bar from %v lies on a sign to %v", topOf(bar), bottomOf(sign))
			}
		}
	}
}

func topOf(ps []xy) float64 { return slices.MinFunc(ps, byY).Y }

func bottomOf(ps []xy) float64 { return slices.MaxFunc(ps, byY).Y }

func byY(a, b xy) int { return cmp.Compare(a.Y, b.Y) }

// TestTextsKeepTheirWidth: a browser without the font does not cut them.
func TestTextsKeepTheirWidth(t *testing.T) {
	c := newSVG(100, 100)
	c.text(xy{50, 50}, "a label", 9, 1, false)
	if s := c.end(); !strings.Contains(s, fmt.Sprintf(`textLength="%.2f"`, textWidth("a label", 9))) {
		t.Error(s)
	}
}

func TestNothingToDraw(t *testing.T) {
	for _, name := range append(Names(), "") {
		if pics, err := Draw(name, nil); err != nil || len(pics) != 0 {
			t.Errorf("%q without results: %d pictures, %v", name, len(pics), err)
		}
	}
	if _, err := Draw("pie", nil); err == nil || !strings.Contains(err.Error(), "roofline") {
		t.Errorf("an unknown picture: %v", err)
	}
}

// TestRooflineOfAProcessor: operators alone show a roof of memory and of each type's arithmetic,
// modelled and measured.
func TestRooflineOfAProcessor(t *testing.T) {
	run := newRun("cpu", 1)
	var entries []store.Entry
	for typ, peak := range map[string]float64{"f32": 100, "q4_0": 400} {
		entries = append(entries, result(run, "op/linear", 1e-3, func(r *record.Result) {
			r.Params = map[string]string{"m": "8", "type": typ}
			r.Cache, r.Bytes, r.Flops = record.Cold, 1e7, 5e7
			r.Roofs = record.Roofs{GFlops: peak, MeasuredGFlops: 0.9 * peak, MeasuredReadGBs: 12, MostGBs: 800}
		}))
	}
	pics, err := Draw("roofline", entries)
	if err != nil || len(pics) != 1 {
		t.Fatalf("%d pictures, %v", len(pics), err)
	}
	text := fmt.Sprint(pics[0].Rows)
	for _, want := range []string{"roof: memory, measured   12", "roof: f32, modelled  100", "roof: f32, measured  90",
		"roof: q4_0, modelled  400"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

// TestHistoryIsOfMeasurements: threads have pictures of their own, and runs that only check results are in none.
func TestHistoryIsOfMeasurements(t *testing.T) {
	var entries []store.Entry
	for threads := 1; threads <= 2; threads++ {
		for day := range 3 {
			run := newRun("cpu", day+1)
			run.Env.Threads, run.Env.Level = threads, "go"
			if day == 2 {
				run.Label = "exp/x/1/check"
			}
			entries = append(entries, result(run, "op/add", 1e-3/float64(threads), nil))
		}
	}
	pics, err := Draw("history", entries)
	if err != nil || len(pics) != 2 {
		t.Fatalf("%d pictures, %v", len(pics), err)
	}
	for _, p := range pics {
		if len(p.Rows) != 2 || !strings.Contains(p.Title, "thread") {
			t.Errorf("%s: %v", p.Title, p.Rows)
		}
	}
}
