package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

// adapterFor writes an adapter of PEFT's for some matrices of a folder, of random numbers of a size that changes texts.
func adapterFor(t testing.TB, base string, seed uint64, rank int, modules ...string) string {
	t.Helper()
	src, err := open.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	r := rand.New(rand.NewPCG(seed, 1))
	head := map[string]any{}
	var data []byte
	put := func(name string, rows, cols int, size float64) {
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(r.NormFloat64() * size)
		}
		b := make([]byte, 4*len(x))
		if err := quant.Encode(tensor.F32, b, x, cols); err != nil {
			t.Fatal(err)
		}
		head[name] = map[string]any{"dtype": "F32", "shape": []int{rows, cols}, "data_offsets": []int{len(data),
			len(data) + len(b)}}
		data = append(data, b...)
	}
	for _, name := range src.Names() {
		stem := strings.TrimSuffix(name, ".weight")
		if slices.ContainsFunc(modules, func(m string) bool { return strings.HasSuffix(stem, m) }) {
			_, shape, _ := src.Lookup(name)
			put("base_model.model."+stem+".lora_A.weight", rank, shape[1], 0.1)
			put("base_model.model."+stem+".lora_B.weight", shape[0], rank, 0.1)
		}
	}
	dir := t.TempDir()
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	n := len(text)
	file := slices.Concat([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 0, 0, 0, 0}, text, data)
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": %d, "base_model_name_or_path": "tolstoy"}`,
		rank, 2*rank)
	for name, b := range map[string][]byte{"adapter_config.json": []byte(config), "adapter_model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLora: an adapter changes the text, as a file does into which it is merged; a wrong base is
// refused with names and shapes.
func TestLora(t *testing.T) {
	model := trained(t)
	adapter := adapterFor(t, model, 1, 4, "q_proj", "k_proj", "v_proj", "down_proj")
	ask := func(model string, more ...string) []int32 {
		return runReport(t, with([]string{model, "--tokens", "5,17,99,120", "--gen", "24", "--kv", "f32", "--exact",
			"--ignore-eos"}, more...)...).GeneratedTokens
	}
	plain, changed := ask(model), ask(model, "--lora", adapter)
	if slices.Equal(plain, changed) {
		t.Error("an adapter changes nothing")
	}
	if twice := ask(model, "--lora", adapter, "--lora", adapterFor(t, model, 2, 4, "q_proj",
		"up_proj")); slices.Equal(twice, changed) {
		t.Error("a second adapter changes nothing")
	}
	out := filepath.Join(t.TempDir(), "merged.gguf")
	if r := greta(t, "export", "gguf", model, "--lora", adapter, "--out", out); r.code != 0 {
		t.Fatalf("code %d: %s", r.code, r.err)
	}
	if merged := ask(out); !slices.Equal(merged, changed) {
		t.Errorf("merged into a file: %v, at run time: %v", merged, changed)
	}
	base := filepath.Join(t.TempDir(), "base.gguf")
	if r := greta(t, "quantize", model, base); r.code != 0 {
		t.Fatalf("code %d: %s", r.code, r.err)
	}
	if onGGUF := ask(base, "--lora", adapter); !slices.Equal(onGGUF, changed) {
		t.Errorf("PEFT's adapter on a GGUF base: %v, on the folder: %v", onGGUF, changed)
	}
	small := filepath.Join(t.TempDir(), "small.gguf")
	if r := greta(t, "export", "gguf", model, "--lora", adapter, "--type", "q8_0", "--out", small); r.code != 0 ||
		!strings.Contains(r.out, "q8_0") {
		t.Errorf("code %d: %s %s", r.code, r.out, r.err)
	}
	other := adapterFor(t, family(t, "llama2_gqa_tied"), 3, 2, "q_proj")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", model, "--tokens", "1", "--lora", other}, "is not for"},
		{[]string{"run", model, "--tokens", "1", "--lora", t.TempDir()}, "adapter_config.json"},
		{[]string{"run", out, "--tokens", "1", "--lora", other}, ""},
		{[]string{"run", "llama2_block", "--lora", adapter}, "synthetic"},
		{[]string{"export", "gguf", model, "--out", out + "2"}, "--lora"},
		{[]string{"export", "gguf", model, "--lora", adapter}, "--out"},
		{[]string{"export", "gguf", model, "--lora", adapter, "--out", out}, "exists"},
		{[]string{"export", "gguf", model, "--lora", other, "--out", out + "3"}, "is not for"},
		{[]string{"export", "gguf", model, "--lora", adapter, "--type", "q9", "--out", out + "4"}, "q8_0"},
		{[]string{"export", "gguf", "--lora", adapter}, "weights"},
		{[]string{"export", "csv", "--lora", adapter}, "export gguf"},
	} {
		if r := greta(t, c.args...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: code %d, %s", c.args, r.code, r.err)
		}
	}
}

// TestAdaptersOfPrompts: lines of a file of prompts name adapters, which run in one step; each says
// what --lora says. With guesses and pages on disk too, of which those of another adapter are not
// used.
func TestAdaptersOfPrompts(t *testing.T) {
	model := trained(t)
	paths := map[string]string{"one": adapterFor(t, model, 1, 4, "q_proj", "v_proj"), "two": adapterFor(t, model, 2, 8,
		"down_proj", "k_proj")}
	tokens := "5,17,99,120,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37"
	base := []string{"--gen", "10", "--kv", "f32", "--exact", "--ignore-eos", "--dtype", "f32"}
	want := map[string][]int32{"": runReport(t, with(append([]string{model}, base...), "--tokens",
		tokens)...).GeneratedTokens}
	var lines []string
	for i := range 6 {
		name := []string{"", "one", "two"}[i%3]
		lines = append(lines, fmt.Sprintf(`{"tokens": [%s], "adapter": %q}`, tokens, name))
		if name != "" && want[name] == nil {
			want[name] = runReport(t, with(append([]string{model}, base...), "--tokens", tokens, "--lora",
				paths[name])...).GeneratedTokens
		}
	}
	file := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{model, "--prompts", file, "--adapter", "one=" + paths["one"], "--adapter",
		"two=" + paths["two"],
		"--draft", "ngram", "--prefix-cache", t.TempDir()}, base...)
	for round := range 2 {
		all, r := promptAnswers(t, args...)
		if r.code != 0 || len(all) != len(lines) {
			t.Fatalf("exit code %d, %d answers\n%s", r.code, len(all), r.err)
		}
		for i, a := range all {
			name := []string{"", "one", "two"}[i%3]
			if w := want[name]; !slices.Equal(a.Tokens[:4], w[:4]) { // merging rounds to the type of the file
				t.Errorf("adapter %q says %v, --lora %v", name, a.Tokens, w)
			}
			if w := all[i%3].Tokens; !slices.Equal(a.Tokens, w) || i > 0 && i < 3 && slices.Equal(w, all[i-1].Tokens) {
				t.Errorf("adapter %q says %v and %v, that before it %v", name, a.Tokens, w, all[max(0, i-1)].Tokens)
			}
			if round == 1 && a.Cached < 32 {
				t.Errorf("adapter %q: %d tokens cached in the second run", name, a.Cached)
			}
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte(`{"prompt": "x", "adapter": "three"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--prompts", bad}, "--adapter three="},
		{[]string{"--prompts", file, "--adapter", "one"}, "NAME=PATH"},
		{[]string{"--prompts", file, "--adapter", "one=" + t.TempDir()}, "adapter_config.json"},
		{[]string{"--prompt", "x", "--adapter", "one=x"}, "it needs --prompts"},
	} {
		if r := greta(t, append([]string{"run", model}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err,
			c.want) {
			t.Errorf("%v: code %d, %s", c.args, r.code, r.err)
		}
	}
}
