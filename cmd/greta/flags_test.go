package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// TestWeightsFlag: a model file with weights of its own is what the weights alone
// are, and something else than with synthetic ones.
func TestWeightsFlag(t *testing.T) {
	dir := family(t, "llama2_gqa_tied")
	run := func(args ...string) []int32 {
		t.Helper()
		return runReport(t, append(args, "--tokens", "1,5,9", "--gen", "8", "--ignore-eos", "--kv", "f32")...).GeneratedTokens
	}
	want := run(dir)
	if got := run("llama2_7b", "--weights", dir); !slices.Equal(got, want) {
		t.Errorf("%v by the model file, %v by the weights", got, want)
	}
	if got := run("llama2_7b", "--set", "L=1", "--set", "D=64", "--set", "H=4", "--set", "G=2", "--set", "F=96", "--set",
		"V=128"); slices.Equal(got, want) {
		t.Errorf("synthetic weights give what the file's give: %v", got)
	}
	text := func(args ...string) string {
		t.Helper()
		r := greta(t, args...)
		if r.code != 0 {
			t.Fatalf("greta %s: %s", strings.Join(args, " "), r.err)
		}
		return r.out
	}
	if text("dump", "--stage", "graph", "llama2_7b", "--weights", dir) != text("dump", "--stage", "graph", dir) {
		t.Error("dump: other graphs")
	}
	few, all := text("check", "llama2_7b", "--weights", dir), text("check", "llama2_7b", "--weights", dir, "--all")
	if strings.Count(all, "\n") < strings.Count(few, "\n")+10 || !strings.Contains(all, "ok") {
		t.Errorf("--all prints %d lines, %d without it", strings.Count(all, "\n"), strings.Count(few, "\n"))
	}
}

// TestSpecialFlag: the text of a control token is text, or the token.
func TestSpecialFlag(t *testing.T) {
	plain, special := greta(t, "tokenize", trained(t), "</s>", "--no-bos"),
		greta(t, "tokenize", trained(t), "</s>", "--no-bos", "--special")
	if strings.TrimSpace(special.out) != "2" || !strings.Contains(plain.out, ",") {
		t.Errorf("%q as text, %q as a token: 2 is expected", plain.out, special.out)
	}
	prompt := func(args ...string) int {
		return len(runReport(t, append([]string{trained(t), "--prompt", "</s>", "--gen", "1"}, args...)...).PromptTokens)
	}
	if a, b := prompt(), prompt("--special"); b != 2 || a <= b {
		t.Errorf("a prompt of %d tokens, and of %d with --special", a, b)
	}
}

// TestListFlag: the benchmarks of the platform are listed, and nothing is measured.
func TestListFlag(t *testing.T) {
	if r := greta(t, "bench", "platform", "--list"); r.code != 0 || !strings.Contains(r.out, "stream") ||
		strings.Contains(r.out, "GB/s  ") {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
}

// endless is a text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestReadText: a text is read up to its bound, and refused beyond it.
func TestReadText(t *testing.T) {
	for _, c := range []struct{ in, want string }{{"", ""}, {"abc\n", "abc"}, {"12345678", "12345678"},
		{"1234567\n", "1234567"}} {
		if got, err := readText(strings.NewReader(c.in), 8); got != c.want || err != nil {
			t.Errorf("%q gives %q, %v", c.in, got, err)
		}
	}
	for _, in := range []io.Reader{strings.NewReader("123456789"), endless{}} {
		_, err := readText(in, 8)
		if err == nil || !strings.Contains(err.Error(), "longer than 8 bytes") || exitCode(err) != 2 {
			t.Errorf("a text of more than 8 bytes: %v", err)
		}
	}
}

// TestFlagValues: what a flag does not take is said in greta's words, by variables too.
func TestFlagValues(t *testing.T) {
	for args, want := range map[string]string{
		"run m --context many":                  "greta: --context many: a whole number is expected; see greta run --help",
		"run m --context 99999999999999999999":  "a whole number that is not as large is expected",
		"run m --temperature=hot":               "greta: --temperature hot: a number is expected",
		"run m --exact=5":                       "greta: --exact 5: true or false is expected",
		"bench op silu --min-time 5":            "greta: --min-time 5: a time such as 500ms or 10s is expected",
		"bench op silu --repetitions 1e3 --m 1": "--repetitions 1e3: a whole number is expected",
	} {
		if r := greta(t, strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) ||
			strings.Contains(r.err, "strconv") {
			t.Errorf("greta %s: exit code %d, %s", args, r.code, r.err)
		}
	}
	t.Setenv("GRETA_CONTEXT", "many")
	want := `greta: variable GRETA_CONTEXT="many": --context many: a whole number is expected`
	if r := greta(t, "run", "m"); r.code != exitUsage || !strings.Contains(r.err, want) {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}
