package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/testfiles"
)

// promptAnswers runs many prompts and reads what --json writes.
func promptAnswers(t *testing.T, args ...string) (all []promptAnswer, r result) {
	t.Helper()
	r = greta(t, append([]string{"run"}, append(args, "--json", "-")...)...)
	for line := range strings.Lines(r.out) {
		var a promptAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b promptAnswer) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return a.Choice - b.Choice
	})
	return all, r
}

// oneAtATime are the families that read caches in ways that pages do not have: chosen rows.
var oneAtATime = []string{"deepseek_v32", "deepseek_v4", "deepseek_v4_published", "dots3_note", "glm_moe_dsa"}

// Every family gives, of prompts that run beside each other, the tokens of its golden file: where caches lie in pages,
// where recurrences have a slot a sequence, and where a model has both.
func TestFamiliesAtOnce(t *testing.T) {
	folders := kin(t)
	for _, name := range families(t) {
		folders = append(folders, filepath.Join(family(t, name), "expected.safetensors"))
	}
	for i, expected := range folders {
		if i%6 != 0 && !testfiles.Exhaustive() {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(expected)), func(t *testing.T) {
			g, err := golden.Open(expected)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for i := range 6 { // the golden prompt among others that begin like it
				ids := g.Prompt
				if i%3 == 1 {
					ids = g.Input[i%len(g.Input)]
					ids = ids[:min(len(ids), 20+i)]
				}
				lines = append(lines, fmt.Sprintf(`{"tokens": [%s], "max_tokens": %d}`, joinIDs(ids), len(g.Greedy)))
			}
			file := filepath.Join(t.TempDir(), "prompts.jsonl")
			if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			all, r := promptAnswers(t, filepath.Dir(expected), "--prompts", file, "--parallel", "4", "--kv", "f32",
				"--ignore-eos", "--kv-tokens", "512", "--exact")
			if slices.Contains(oneAtATime, filepath.Base(filepath.Dir(expected))) {
				if r.code != exitUsage || !strings.Contains(r.err, "runs one sequence at a time") {
					t.Errorf("exit code %d\n%s", r.code, r.err)
				}
				return
			}
			if r.code != 0 || len(all) != len(lines) {
				t.Fatalf("exit code %d, %d answers\n%s", r.code, len(all), r.err)
			}
			for i, a := range all {
				if i%3 != 1 && !slices.Equal(a.Tokens, g.Greedy) {
					t.Errorf("prompt %d: %v, want %v", i, a.Tokens, g.Greedy)
				}
			}
		})
	}
}

// run --prompts gives the texts that run --prompt gives, in order; where products do not
// round, choices of a seed are the same in any company.
func TestRunPrompts(t *testing.T) {
	prompts := []string{"Prince Andrew", "The army", "In the morning", "Natasha"}
	file := filepath.Join(t.TempDir(), "prompts.txt")
	if err := os.WriteFile(file, []byte(strings.Join(prompts, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	r := greta(t, "run", trained(t), "--prompts", file, "-n", "10")
	if r.code != 0 || !strings.Contains(r.err, "4 prompts, 40 tokens") {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	var want strings.Builder
	for i, p := range prompts {
		one := greta(t, "run", trained(t), "--prompt", p, "-n", "10")
		fmt.Fprintf(&want, "==> %d.0 <==\n%s", i, one.out)
	}
	if r.out != want.String() {
		t.Errorf("%q\nis not\n%q", r.out, want.String())
	}
	sampled := []string{"--temperature", "0.8", "--seed", "5", "-n", "10", "--choices", "2", "--exact"}
	beside, r := promptAnswers(t, append([]string{trained(t), "--prompts", file}, sampled...)...)
	if r.code != 0 || len(beside) != 8 {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	alone, r := promptAnswers(t, append([]string{trained(t), "--prompt", prompts[2]}, sampled...)...)
	if r.code != 0 || len(alone) != 2 {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	for i, a := range alone {
		if b := beside[4+i]; !slices.Equal(a.Tokens, b.Tokens) || a.Text != b.Text || a.Stop != "max" {
			t.Errorf("choice %d: alone %q, beside others %q", i, a.Text, b.Text)
		}
	}
	if alone[0].Text == alone[1].Text {
		t.Errorf("two choices are the same: %q", alone[0].Text)
	}
}

// --best-of gives the likeliest of several answers, those of the same seeds; --invariant and --capture change no text
// where nothing rounds.
func TestBestOf(t *testing.T) {
	base := []string{trained(t), "--prompt", "The army", "-n", "8", "--temperature", "0.9", "--seed", "4", "--exact"}
	all, r := promptAnswers(t, with(base, "--choices", "5", "--logprobs", "1", "--capture", "1..4*2,5")...)
	if r.code != 0 || len(all) != 5 {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	mean := func(a promptAnswer) (sum float64) {
		for _, x := range a.Logprobs {
			sum += float64(x.Logprob) / float64(len(a.Tokens))
		}
		return sum
	}
	slices.SortStableFunc(all, func(a, b promptAnswer) int { return cmp.Compare(mean(b), mean(a)) })
	best, r := promptAnswers(t, with(base, "--choices", "2", "--best-of", "5", "--invariant")...)
	if r.code != 0 || len(best) != 2 {
		t.Fatalf("exit code %d, %d answers\n%s", r.code, len(best), r.err)
	}
	for i, b := range best {
		if !slices.Equal(b.Tokens, all[i].Tokens) || b.Mean == nil || math.Abs(*b.Mean-mean(all[i])) > 1e-4 || b.Choice != i {
			t.Errorf("answer %d: %+v, wanted %+v with %g", i, b, all[i].Tokens, mean(all[i]))
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--best-of", "2", "--temperature", "0"}, "without --temperature"},
		{[]string{"--best-of", "2", "--choices", "3"}, "at least --choices"},
		{[]string{"--choices", "2", "--capture", "0"}, "one has 1 to"},
		{[]string{"--choices", "2", "--parallel", "64", "--capture", "1..256"}, "are kept at most"},
		{[]string{"--capture", "4"}, "it needs --prompts or --choices"},
	} {
		if r := greta(t, append([]string{"run"}, with(base, c.args...)...)...); r.code != exitUsage ||
			!strings.Contains(r.err, c.want) {
			t.Errorf("%v: exit code %d, %q is wanted: %s", c.args, r.code, c.want, r.err)
		}
	}
}

// Caches of eight bits, of one sequence and in pages.
func TestNarrowCaches(t *testing.T) {
	for kv, tolerance := range map[string]string{"q8_0": "2e-02", "f8e4m3": "1e-01"} {
		if r := greta(t, "check", trained(t), "--kv", kv, "--exact"); r.code != 0 || !strings.Contains(r.out, tolerance) {
			t.Errorf("--kv %s: exit code %d\n%s%s", kv, r.code, r.out, r.err)
		}
		base := []string{trained(t), "--prompt", "Prince Andrew and the count", "-n", "12", "--exact", "--kv", kv}
		one := runReport(t, base...)
		many, r := promptAnswers(t, append(base, "--choices", "2")...)
		if r.code != 0 || len(many) != 2 || !slices.Equal(many[0].Tokens, one.GeneratedTokens) {
			t.Errorf("--kv %s: exit code %d; %v, one sequence alone %v\n%s", kv, r.code, many, one.GeneratedTokens, r.err)
		}
	}
	r := greta(t, "run", family(t, "llama2_mha"), "--tokens", "1,2", "--kv", "q8_0")
	if r.code == 0 || !strings.Contains(r.err, "no whole blocks") {
		t.Errorf("narrow heads: exit code %d\n%s", r.code, r.err)
	}
}

// What cannot be answered is said, with an exit code for bad input.
func TestRunPromptsRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	model, good := trained(t), file("good.txt", "The army\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--prompts", file("empty.txt", "\n\n")}, "there is no prompt in it"},
		{[]string{"--prompts", filepath.Join(dir, "none.txt")}, "no such file"},
		{[]string{"--prompts", file("bad.jsonl", `{"prompt": "x", "max": 3}`)}, "line 1"},
		{[]string{"--prompts", file("both.jsonl", `{"prompt": "x", "tokens": [3]}`)}, "one of both"},
		{[]string{"--prompts", good, "--prompt", "x"}, "exclude each other"},
		{[]string{"--prompts", good, "--nll"}, "for one sequence"},
		{[]string{"--prompts", good, "--parallel", "0"}, "--parallel 0"},
		{[]string{"--prompts", good, "--kv-memory", "much"}, "--kv-memory"},
		{[]string{"--prompt", "x", "--parallel", "2"}, "it needs --prompts or --choices"},
		{[]string{"--prompts", file("far.jsonl", `{"tokens": [99999]}`)}, "vocabulary has 2048"},
		{[]string{"--prompts", good, "--kv-tokens", "32", "--gen", "60"}, "a sequence has 32 at most"},
	} {
		r := greta(t, append([]string{"run", model}, c.args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: exit code %d, %q is wanted: %s", c.args, r.code, c.want, r.err)
		}
	}
}
