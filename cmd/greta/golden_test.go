package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/npy"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// few are golden models that between them have what the others have: tied and gated, soft caps and windows, experts.
var few = []string{"llama2_gqa_tied", "gemma2", "mixtral"}

// Every family gives the logits that an independent implementation computed in
// float64, and its greedy tokens, on every backend.
func TestFamilies(t *testing.T) {
	for _, name := range families(t) {
		for i, backend := range []string{"cpu", "ref"} {
			if i > 0 && !testfiles.Exhaustive() && !slices.Contains(few, name) {
				continue
			}
			t.Run(name+"/"+backend, func(t *testing.T) {
				dir := family(t, name)
				expected := filepath.Join(dir, "expected.safetensors")
				r := greta(t, "check", dir, "--expected", expected, "--backend", backend, "--kv", "f32", "--json")
				if r.code != 0 {
					t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
				}
				var g goldenReport
				if err := json.Unmarshal([]byte(r.out), &g); err != nil {
					t.Fatal(err)
				}
				if g.Positions != 96 || len(g.Greedy) != 32 || !g.GreedyOK || !(g.MaxAbs <= 1e-4) {
					t.Errorf("%+v", g)
				}
				t.Logf("max abs %.2e, relative L2 %.2e", g.MaxAbs, g.RelL2)
			})
		}
	}
}

// run --logits writes what the golden file has, and the greedy tokens follow.
func TestRunLogits(t *testing.T) {
	names := few
	if testfiles.Exhaustive() {
		names = families(t)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := family(t, name)
			g, err := golden.Open(filepath.Join(dir, "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "out.npy")
			runReport(t, dir, "--tokens", joinIDs(g.Input[1]), "--logits", path, "--kv", "f32")
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, rows, cols, err := npy.Read(f)
			if err != nil || rows != g.Seq || cols != g.Vocab {
				t.Fatalf("%d by %d, %v", rows, cols, err)
			}
			if _, worst := report.Compare(got, g.Logits[g.Seq*g.Vocab:]); !(worst <= 1e-4) {
				t.Errorf("max abs %.2e", worst)
			}
			rep := runReport(t, dir, "--tokens", joinIDs(g.Prompt), "--gen", "32", "--kv", "f32", "--ignore-eos")
			if !slices.Equal(rep.GeneratedTokens, g.Greedy) {
				t.Errorf("greedy %v, want %v", rep.GeneratedTokens, g.Greedy)
			}
		})
	}
}

// A wrong golden file is a mismatch that names the place. Caches of f16 alone differ
// by more than is allowed: then the error says which flag to try.
func TestGoldenMismatch(t *testing.T) {
	right, wrong := family(t, "llama2_mha"), family(t, "llama2_gqa_tied")
	for _, c := range []struct {
		expected, kv string
		hint         bool
	}{{wrong, "f32", false}, {right, "f16", true}} {
		r := greta(t, "check", right, "--expected", filepath.Join(c.expected, "expected.safetensors"), "--kv", c.kv)
		if r.code != exitMismatch || !strings.Contains(r.err, "position 0") || strings.Contains(r.err, "--kv f32") != c.hint {
			t.Errorf("--kv %s: exit code %d, %s", c.kv, r.code, r.err)
		}
	}
}

// Logits are right within a part of their size: a single one that is off by 2e-4 is nothing beside the others, a
// position that is off by a hundredth is found.
func TestGoldenSizes(t *testing.T) {
	dir := family(t, "llama2_mha")
	data, err := os.ReadFile(filepath.Join(dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
		Shape   []int
	}
	end := 8 + int(binary.LittleEndian.Uint64(data))
	if err := json.Unmarshal(data[8:end], &header); err != nil {
		t.Fatal(err)
	}
	at := header["logits"]
	for _, c := range []struct {
		position, code int
		change         func(i int, x float32) float32
	}{
		{0, 0, func(i int, x float32) float32 {
			if i == 0 {
				x += 2e-4
			}
			return x
		}},
		{3, exitMismatch, func(_ int, x float32) float32 { return 1.01 * x }},
	} {
		changed := bytes.Clone(data)
		width := at.Shape[len(at.Shape)-1]
		logits := tensor.View[float32](changed[end+at.Offsets[0] : end+at.Offsets[1]])
		for i, x := range logits[c.position*width : (c.position+1)*width] {
			logits[c.position*width+i] = c.change(i, x)
		}
		path := filepath.Join(t.TempDir(), "expected.safetensors")
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		r := greta(t, "check", dir, "--expected", path, "--kv", "f32")
		at := fmt.Sprintf("row 0, position %d:", c.position)
		if r.code != c.code || c.code != 0 && !strings.Contains(r.err, at) {
			t.Errorf("exit code %d instead of %d: %s%s", r.code, c.code, r.out, r.err)
		}
	}
}

// --expected takes a folder, and JSON with texts; what is wrong in it is named, and what
// is no such file is code 2.
func TestExpected(t *testing.T) {
	family, trained := family(t, "llama2_gqa_tied"), trained(t)
	for _, c := range []struct {
		model, expected string
		want            []string
	}{
		{family, family, []string{"96 positions", "STATUS=OK"}},
		{trained, trained, []string{"4 texts, equal: true", "nll      4.124", "STATUS=OK"}},
		{trained, filepath.Join(trained, "expected.json"), []string{"STATUS=OK"}},
	} {
		r := greta(t, "check", c.model, "--expected", c.expected)
		for _, want := range c.want {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("--expected %s: exit code %d, %q is wanted\n%s%s", c.expected, r.code, want, r.out, r.err)
			}
		}
	}
	_, x := readTolstoy(t)
	tokens, greedy := joinIDs(x.Greedy[0].Tokens), slices.Clone(x.Greedy[0].Greedy[:3])
	greedy[2]++
	for content, c := range map[string]struct {
		code int
		want string
	}{
		fmt.Sprintf(`{"greedy": [{"prompt_tokens": [%s], "greedy": [%s]}]}`, tokens, joinIDs(greedy)): {exitMismatch,
			"greedy[0] differs first at token 2"},
		fmt.Sprintf(`{"nll_tokens": [%s], "nll": 1}`, tokens): {exitMismatch,
			"expected 1.000000: off by"},
		`{"nll_tokens": [5, 100000], "nll": 1}`: {exitUsage,
			"token 100000, the model"},
		`{"nll": 1}`: {exitUsage,
			"belong together"},
		`{}`: {exitUsage,
			"neither greedy nor nll"},
		`[`: {exitUsage,
			"unexpected end"},
		`{"greedy":[{}]}`: {exitUsage,
			"greedy[0] has 0 prompt_tokens"},
	} {
		r := greta(t, "check", trained, "--expected", write(t, "e.json", content), "--kv", "f32")
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", content, r.code, c.code, c.want, r.err)
		}
	}
	if r := greta(t, "check", trained, "--expected", t.TempDir()); r.code != exitUsage ||
		!strings.Contains(r.err, "holds none of expected.safetensors") {
		t.Errorf("an empty folder: exit code %d, %s", r.code, r.err)
	}
}

// A comparison with exact results rounds nothing on any backend, unless a flag says so.
func TestExpectedIsExact(t *testing.T) {
	for _, c := range []struct {
		backend, given string
		exact          bool
		fp16, kv       string
	}{
		{"cpu", "", true, "off", "f32"},
		{"hip", "", false, "off", "f32"},
		{"vulkan", "kv", false, "off", "f16"},
		{"hip", "fp16", false, "on", "f32"},
		{"cpu", "exact", false, "off", "f32"},
	} {
		f := &checkFlags{}
		f.backend, f.fp16, f.kv = c.backend, "on", "f16"
		f.settleExact(func(flag string) bool { return flag == c.given })
		if f.exact != c.exact || f.fp16 != c.fp16 || f.kv != c.kv {
			t.Errorf("%s, --%s given: exact %v, --fp16 %s, --kv %s", c.backend, c.given, f.exact, f.fp16, f.kv)
		}
	}
}

// tolstoy is the trained model's expected.json.
type tolstoy struct {
	Greedy []struct {
		Prompt string  `json:"prompt"`
		Tokens []int32 `json:"prompt_tokens"`
		Greedy []int32 `json:"greedy"`
		Text   string  `json:"text"`
	} `json:"greedy"`
	NLLTokens []int32 `json:"nll_tokens"`
	NLL       float64 `json:"nll"`
}

func readTolstoy(t *testing.T) (string, *tolstoy) {
	t.Helper()
	dir := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	x := &tolstoy{}
	if err := json.Unmarshal(data, x); err != nil {
		t.Fatal(err)
	}
	if len(x.Greedy) != 4 || len(x.NLLTokens) < 500 {
		t.Fatalf("expected.json holds %d texts and %d tokens", len(x.Greedy), len(x.NLLTokens))
	}
	return dir, x
}

func TestTolstoy(t *testing.T) {
	dir, x := readTolstoy(t)
	for _, g := range x.Greedy {
		rep := runReport(t, dir, "--prompt", g.Prompt, "--kv", "f32", "--gen", strconv.Itoa(len(g.Greedy)))
		if !slices.Equal(rep.PromptTokens, g.Tokens) {
			t.Errorf("%q is %v, want %v", g.Prompt, rep.PromptTokens, g.Tokens)
		}
		if !slices.Equal(rep.GeneratedTokens, g.Greedy) {
			t.Errorf("%q: got  %v\nwant %v", g.Prompt, rep.GeneratedTokens, g.Greedy)
		}
		if strings.TrimSpace(rep.Text) != strings.TrimSpace(g.Text) {
			t.Errorf("%q: got %q, want %q", g.Prompt, rep.Text, g.Text)
		}
	}
}

func TestTolstoyNLL(t *testing.T) {
	dir, x := readTolstoy(t)
	for _, kv := range []string{"f32", "f16"} {
		rep := runReport(t, dir, "--tokens", joinIDs(x.NLLTokens), "--nll", "--kv", kv, "--exact")
		if rep.NLL == nil || math.Abs(*rep.NLL-x.NLL) > 1e-4 {
			t.Errorf("--kv %s: %v, want %g", kv, rep.NLL, x.NLL)
		} else {
			t.Logf("--kv %s: %.6f, off by %.1e", kv, *rep.NLL, *rep.NLL-x.NLL)
		}
		if rep.Mode != "score" || len(rep.GeneratedTokens) > 0 {
			t.Errorf("mode %s, %d tokens generated", rep.Mode, len(rep.GeneratedTokens))
		}
	}
}

// llama2.c's run.c printed these texts at temperature 0 with -n 200: the tokens
// of the prompt and those behind it, but for the begin token, are 200.
func TestStories(t *testing.T) {
	dir := testfiles.Shared(t, "data", "stories260K")
	for _, c := range []struct{ prompt, file string }{
		{"", "expected_run.c_t0_n200_empty.txt"},
		{"Once upon a time", "expected_run.c_t0_n200_once.txt"},
		{"One day, Lily", "expected_run.c_t0_n200_one_day_lily.txt"},
	} {
		want, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range [][]string{
			{"stories260K.bin", "--tokenizer", filepath.Join(dir, "tok512.bin")},
			{"stories260K.gguf"},
		} {
			model := append([]string{filepath.Join(dir, m[0])}, m[1:]...)
			prompt := runReport(t, append(model, "--prompt", c.prompt, "--gen", "0")...)
			gen := strconv.Itoa(201 - len(prompt.PromptTokens))
			r := greta(t, append(append([]string{"run"}, model...), "--prompt", c.prompt, "--gen", gen)...)
			if got := c.prompt + r.out; r.code != 0 || got != string(want) {
				t.Errorf("%s, %q: exit code %d\n got %q\nwant %q\n%s", m[0], c.prompt, r.code, got, want, r.err)
			}
			if !strings.HasSuffix(r.err, "STATUS=OK\n") {
				t.Errorf("standard error ends %q", r.err)
			}
		}
	}
}
