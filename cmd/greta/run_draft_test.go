package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/engine/report"
)

// TestDraft: a text is the one without guesses, whoever guesses, greedy and drawn; right guesses
// save steps. With --exact, as one row and several then round alike.
func TestDraft(t *testing.T) {
	base := []string{trained(t), "--prompt", "Prince Andrew and the count and Prince Andrew and", "--gen", "60",
		"--exact", "--kv", "f32"}
	right := 0
	for _, how := range [][]string{nil, {"--temperature", "0.8", "--seed", "3"}, {"--repeat-penalty", "1.2"},
		{"--logprobs", "2"}} {
		want := runReport(t, with(base, how...)...)
		for _, draft := range []string{"ngram", trained(t)} {
			got := runReport(t, with(with(base, how...), "--draft", draft)...)
			if !slices.Equal(got.GeneratedTokens, want.GeneratedTokens) || got.Text != want.Text ||
				got.StopReason != want.StopReason {
				t.Errorf("%v, --draft %s: %v, without %v", how, draft, got.GeneratedTokens, want.GeneratedTokens)
			}
			if got.Drafted == nil || got.Steps == nil || *got.Accepted > *got.Drafted ||
				len(got.Logprobs) != len(want.Logprobs) {
				t.Fatalf("%v, --draft %s: %+v", how, draft, got)
			}
			// A right guess saves a step. The model guesses for itself, so that it is right; how often it guesses
			// follows the times of steps, which others on the machine change.
			n := len(got.GeneratedTokens)
			if draft != "ngram" {
				right += *got.Accepted
			}
			if *got.Steps+*got.Accepted != n {
				t.Errorf("%v, --draft %s: %d steps for %d tokens, %d of %d guesses right", how, draft, *got.Steps, n,
					*got.Accepted, *got.Drafted)
			}
		}
	}
	if right == 0 {
		t.Error("the model guesses for itself, and no guess was right in four texts")
	}
}

func TestDraftIsRefused(t *testing.T) {
	other := family(t, "llama2_mha")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{trained(t), "--prompt", "x", "--draft", "nosuchmodel"}, "--draft"},
		{[]string{trained(t), "--prompt", "x", "--draft", "llama2_7b"}, "no weights"},
		{[]string{trained(t), "--prompt", "x", "--draft", other}, "vocabulary"},
		{[]string{"llama2_block", "--draft", "ngram"}, "--draft ngram: it needs --prompt"},
		{[]string{trained(t), "--prompt", "x", "--gen", "0", "--draft", "ngram"}, "nothing is generated"},
	} {
		if r := greta(t, append([]string{"run"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: code %d, %s", c.args, r.code, r.err)
		}
	}
}

// TestPrefixCache: a second run of the same prompt knows its pages, also after a run that was killed.
func TestPrefixCache(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("Prince Andrew and the count went to the old house. ", 6)
	base := []string{trained(t), "--prompt", text, "--gen", "6", "--exact"}
	want := runReport(t, base...)
	base = with(base, "--prefix-cache", dir, "--prefix-cache-limit", "50MB")
	ctx, cancel := context.WithCancel(t.Context())
	killed := process(ctx, append([]string{"run"}, with(base, "--gen", "100000", "--ignore-eos")...)...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // until it has written some
		if pages, _ := filepath.Glob(filepath.Join(dir, "??", "*")); len(pages) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel() // kills
	_ = killed.Wait()
	first, again := runReport(t, base...), runReport(t, base...)
	if n := len(again.PromptTokens); again.Cached == nil || *again.Cached < n-33 || *again.Cached >= n {
		t.Errorf("%v of %d tokens are known to the second run", again.Cached, n)
	}
	for _, r := range []*report.Report{first, again} {
		if !slices.Equal(r.GeneratedTokens, want.GeneratedTokens) {
			t.Errorf("%v with pages of the disk, %v without", r.GeneratedTokens, want.GeneratedTokens)
		}
	}
	for _, bad := range [][]string{
		{"run", trained(t), "--prompt", "x", "--prefix-cache", dir, "--prefix-cache-limit", "much"},
		{"run", trained(t), "--prompt", "x", "--prefix-cache-limit", "1GB"},
	} {
		if r := greta(t, bad...); r.code != exitUsage {
			t.Errorf("%v: code %d, %s", bad, r.code, r.err)
		}
	}
}
