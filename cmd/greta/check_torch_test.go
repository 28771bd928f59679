package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/testfiles"
)

// torchAnswer makes a program in Python's place, which answers and gives tensors of float64.
func torchAnswer(t *testing.T, answer string, tensors map[string][]float64, shapes map[string][]int) string {
	t.Helper()
	dir := t.TempDir()
	head, data := map[string]any{}, []byte{}
	for name, x := range tensors {
		from := len(data)
		for _, v := range x {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		}
		head[name] = map[string]any{"dtype": "F64", "shape": shapes[name], "data_offsets": []int{from, len(data)}}
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	_ = binary.Write(&file, binary.LittleEndian, uint64(len(text)))
	file.Write(text)
	file.Write(data)
	path := filepath.Join(dir, "python")
	script := fmt.Sprintf("#!/bin/sh\ncp '%s/tensors' \"$3\"\ncat <<'END'\nLoading\n%s\nEND\n", dir, answer)
	for name, content := range map[string][]byte{"tensors": file.Bytes(), "python": []byte(script)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestAgainstTorch: what a Python computed is compared value by value, and the first equation that
// differs is named with those that can be at fault. The logits are an independent implementation's.
func TestAgainstTorch(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "families", "apertus")
	g, err := golden.Open(filepath.Join(dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float64, g.Seq*g.Vocab)
	for i := range logits {
		logits[i] = float64(g.Logits[i])
	}
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(g.Input[0]), " ", ","), "[]")
	const answer = `{"layers": ["model.layers.0", "model.layers.1"], "versions": "transformers 0", "notes": ["a note"]}`
	tensors := map[string][]float64{"logits": logits}
	shapes := map[string][]int{"logits": {g.Seq, g.Vocab}}
	check := []string{"check", dir, "--against", "torch", "--tokens", ids, "--python"}

	r := greta(t, append(check, torchAnswer(t, answer, tensors, shapes))...)
	if r.code != 0 || !strings.Contains(r.out, "STATUS=OK") || !strings.Contains(r.out, "a note") ||
		!strings.Contains(r.out, "transformers 0, float64, 48 tokens") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}

	// The result of a module, its heads before the tokens, is another: the equation of that weight is the first.
	const width = 32
	tensors["out:model.layers.1.self_attn.q_proj"] = make([]float64, g.Seq*width)
	shapes["out:model.layers.1.self_attn.q_proj"] = []int{1, 4, g.Seq, width / 4}
	r = greta(t, append(check, torchAnswer(t, answer, tensors, shapes), "--json")...)
	var report torchReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("exit code %d: %v\n%s", r.code, err, r.err)
	}
	if r.code != exitMismatch || report.First == nil || report.First.Equation != "blk.1.qr" || report.First.Block != 1 ||
		report.First.Module != "model.layers.1.self_attn.q_proj, result" || len(report.Points) != 2 ||
		!strings.HasPrefix(report.First.Place, "models/attention_block.yaml:") ||
		report.Equations[len(report.Equations)-1] != "blk.1.qr" || !strings.Contains(r.err, "blk.1.qr is the first") {
		t.Errorf("exit code %d: %+v\n%s", r.code, report, r.err)
	}

	stub := torchAnswer(t, `{"error": "this Python has no torch: pip install torch"}`, nil, nil)
	for want, args := range map[string][]string{
		"has no torch: pip install": {dir, "--against", "torch", "--python", stub},
		"no answer of the script":   {dir, "--against", "torch", "--python", torchAnswer(t, "hello", nil, nil)},
		"no value could be compared": {dir, "--against", "torch", "--python",
			torchAnswer(t, answer, map[string][]float64{"out:gone": {1}}, map[string][]int{"out:gone": {1}})},
		"--python /no/such":            {dir, "--against", "torch", "--python", "/no/such"},
		"there is torch":               {dir, "--against", "jax"},
		"--python is for":              {dir, "--python", stub},
		"one of them is wanted":        {dir, "--against", "torch", "--expected", dir},
		"which transformers reads too": {"models/llama2_block.yaml", "--against", "torch", "--python", stub},
	} {
		if r := greta(t, append([]string{"check"}, args...)...); r.code != exitUsage && r.code != exitFailed ||
			!strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %q is wanted:\n%s", args, r.code, want, r.err)
		}
	}
}

// TestAgainstTorchReally compares with the transformers of the Python that GRETA_TORCH names.
func TestAgainstTorchReally(t *testing.T) {
	python := os.Getenv("GRETA_TORCH")
	if python == "" {
		t.Skip("GRETA_TORCH names no Python with torch and transformers")
	}
	for name, wrong := range map[string]struct{ set, equation string }{
		"glm4_moe": {"layout=pair", "blk.0.a1"},
		"mamba":    {},
	} {
		dir := testfiles.Repo(t, "testdata", "families", name)
		r := greta(t, "check", dir, "--against", "torch", "--python", python, "--all")
		if r.code != 0 || !strings.Contains(r.out, "STATUS=OK") || strings.Count(r.out, " ok\n") < 20 {
			t.Errorf("%s: exit code %d\n%s%s", name, r.code, r.out, r.err)
		}
		if wrong.set == "" {
			continue
		}
		r = greta(t, "check", dir, "--against", "torch", "--python", python, "--set", wrong.set)
		if r.code != exitMismatch || !strings.Contains(r.out, "first that differs        "+wrong.equation) {
			t.Errorf("%s: exit code %d\n%s%s", name, r.code, r.out, r.err)
		}
	}
}
