package main

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// platformArgs make bench platform quick.
var platformArgs = []string{"bench", "platform", "-r", "2", "--min-time", "1ms", "-o", "json"}

// TestBenchPlatform: results are kept and shown; a parameter, the repetitions, and the
// threads change what is measured.
func TestBenchPlatform(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sqlite")
	rows := benchRows(t, append(platformArgs, "latency", "stream", "--set", "latency.bytes=4096,8192", "--set",
		"stream.n=640", "--threads", "1", "--store", path)...)
	latency, stream := 0, 0
	for _, r := range rows {
		switch {
		case r.Bench == "platform/latency":
			latency++
		case strings.HasPrefix(r.Bench, "platform/stream/"):
			stream++
			if !strings.Contains(r.Params, "threads=1") {
				t.Errorf("%s %s: one thread was asked for", r.Bench, r.Params)
			}
		}
		if r.Verdict != "ok" || r.N < 2 {
			t.Errorf("%s %s: %s %s, %d samples", r.Bench, r.Params, r.Verdict, r.Reason, r.N)
		}
	}
	if latency != 2 || stream < 5 {
		t.Errorf("%d latencies and %d of stream; 2 and 5 at least are expected", latency, stream)
	}
	db, err := store.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	kept, err := db.Results(store.Filter{Kind: "platform"})
	if err != nil || len(kept) != len(rows) || kept[0].Run.Status != record.Complete {
		t.Errorf("%d of %d results are kept, %v", len(kept), len(rows), err)
	}
}

// TestBenchPlatformRefused: each mistake has one line that says what is wrong.
func TestBenchPlatformRefused(t *testing.T) {
	for args, part := range map[string]string{
		"latenc":                             "no benchmark of the platform is called",
		"latency --set latency.size=3":       `has no parameter "size"`,
		"latency --set bytes=3":              "BENCHMARK.PARAMETER=LIST",
		"latency --set stream.n=3":           "stream is not measured here",
		"--profile smoke roofline":           "does not have the benchmark roofline",
		"--profile smok":                     "did you mean smoke?",
		"latency --set latency.bytes=4..x":   "a number is expected",
		"latency -r 0":                       "-r 0",
		"latency --backend cpu --threads -1": "--threads",
	} {
		r := greta(t, append([]string{"bench", "platform", "--no-store"}, strings.Fields(args)...)...)
		if r.code != exitUsage || !strings.Contains(r.err, part) {
			t.Errorf("%s: code %d, %q; %q is expected", args, r.code, r.err, part)
		}
	}
	if r := greta(t, "bench", "platform", "latency", "--backend", "ref", "--no-store"); r.code == 0 ||
		!strings.Contains(r.err, "has no benchmarks of the platform") {
		t.Errorf("ref: %d %q", r.code, r.err)
	}
}

// TestBenchPlatformList names every benchmark, and where it is not.
func TestBenchPlatformList(t *testing.T) {
	r := greta(t, "bench", "platform", "--list", "-o", "json")
	var rows []map[string]any
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || r.code != 0 {
		t.Fatalf("%v %s", err, r.err)
	}
	if len(rows) < 12 {
		t.Errorf("%d benchmarks", len(rows))
	}
}

// TestRoofsByType: a product is held against what its own type reached, never against f32's
// multiply-adds where it is narrower.
func TestRoofsByType(t *testing.T) {
	env := record.Env{Backend: "hip", Device: "X", DeviceID: "0000:01:00.0"}
	entry := func(bench, typ string, flops float64) store.Entry {
		return store.Entry{Run: &record.Run{Env: env}, Result: record.Result{Bench: bench,
			Params: map[string]string{"type": typ}, Flops: flops, Samples: []float64{1}}}
	}
	s := &benchSession{run: record.Run{Env: env}, platform: []store.Entry{entry("platform/roof/product", "f16", 700e9),
		entry("platform/roof/product", "f8e4m3", 1200e9),
		entry("platform/roof/fma", "f32", 60e9), entry("platform/roof/product", "f32", 50e9),
		entry("platform/library", "f32", 90e9)}}
	base := record.Roofs{MeasuredGFlops: 5}
	for typ, want := range map[string]float64{"f16": 700, "f32": 60, "q4_0": 700, "bf16": 0, "": 5} {
		if x := s.roofsFor(base, backends.Info{}, typ); x.MeasuredGFlops != want {
			t.Errorf("%s: %v GFLOP/s, %v is expected", typ, x.MeasuredGFlops, want)
		}
	}
	s.run.Env.DeviceID = "0000:02:00.0"
	if x := s.roofsFor(base, backends.Info{}, "f16"); x.MeasuredGFlops != 0 {
		t.Errorf("another card's roof was taken: %v", x.MeasuredGFlops)
	}
}

// TestBenchPlatformDevices: each device by itself, both at once, and what lies between them; a run
// in the store for each device and one for the set.
func TestBenchPlatformDevices(t *testing.T) {
	if r := greta(t, append(platformArgs, "latency", "--devices", "0", "--dry-run")...); r.code != 0 ||
		!strings.Contains(r.out, "on each of 0, then") {
		t.Errorf("the processor by its number: %d %s%s", r.code, r.out, r.err)
	}
	own, open := members, openMember
	defer func() { members, openMember = own, open }()
	openMember = func(string, deviceFlags) (backends.Device, error) { return cpu.NewLevel("go", 1) }
	members = func(string) ([]string, error) { return []string{"a:0", "a:1"}, nil }
	path := filepath.Join(t.TempDir(), "s.sqlite")
	args := append(platformArgs, "latency", "peer", "--set", "latency.bytes=4096", "--threads", "1")
	r := greta(t, append(args, "--devices", "all", "--store", path)...)
	if r.code != 0 {
		t.Fatalf("%d %s", r.code, r.err)
	}
	db, err := store.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	kept, err := db.Results(store.Filter{Kind: "platform"})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]string{}
	for _, e := range kept {
		what := e.Bench
		if e.Params["at_once"] != "" {
			what += " " + e.Params["device"] + " of " + e.Params["at_once"]
		}
		of[e.Run.ID] = append(of[e.Run.ID], what)
		if set := e.Params["at_once"] != "" || e.Bench == "platform/peer"; strings.HasPrefix(e.Run.Env.Device,
			"2 × ") != set {
			t.Errorf("%s is of the device %q", what, e.Run.Env.Device)
		}
	}
	if len(of) != 3 {
		t.Errorf("%d runs, one a device and one of the set are expected: %v", len(of), of)
	}
	for _, want := range []string{"platform/latency a:0 of 2", "platform/latency a:1 of 2"} {
		if !slices.ContainsFunc(slices.Collect(maps.Values(of)), func(l []string) bool { return slices.Contains(l, want) }) {
			t.Errorf("there is no %s: %v", want, of)
		}
	}

	for devices, part := range map[string]string{"2": `"2" is no device`, "0,0": "named twice", "0,": `"" is no device`} {
		if r := greta(t, append(args, "--no-store", "--devices", devices)...); r.code != exitUsage ||
			!strings.Contains(r.err, part) {
			t.Errorf("--devices %s: %d %s", devices, r.code, r.err)
		}
	}
	if r := greta(t, append(args, "--devices", "all", "--device", "0")...); r.code != exitUsage {
		t.Errorf("--device and --devices: %d %s", r.code, r.err)
	}
	if r := greta(t, append(args, "--no-store", "--devices", "1")...); r.code != 0 ||
		!strings.Contains(r.err, "one device: nothing between devices to measure") {
		t.Errorf("one of two: %d %s", r.code, r.err)
	}
	if r := greta(t, append(args, "--no-store", "--devices", "0,1", "--dry-run")...); r.code != 0 ||
		!strings.Contains(r.out, "on each of a:0, a:1, then on all at once:\nlatency") ||
		!strings.Contains(r.out, "between them: peer") {
		t.Errorf("--dry-run: %d %s%s", r.code, r.out, r.err)
	}
}
