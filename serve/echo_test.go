package serve

import (
	"strings"
	"testing"
)

// TestEchoedLogprobs: harnesses that compare continuations ask for a prompt's log-probabilities, with one token behind
// it or none.
func TestEchoedLogprobs(t *testing.T) {
	m := newFake()
	_, h := testServer(t, m)
	url := h.URL + "/v1/completions"
	for _, c := range []struct {
		more           string
		text, finish   string
		tokens, behind int
	}{
		{`"prompt": "say ab", "max_tokens": 0`, "say ab", "length", 7, 0},
		{`"prompt": "say ab", "max_tokens": 1`, "say aba", "length", 8, 1},
		{`"prompt": [115, 97, 121, 32, 97], "max_tokens": 1`, "say aa", "length", 6, 1},
		{`"prompt": [[115, 97, 121, 32, 97], [120]], "max_tokens": 0`, "say a", "length", 5, 0},
		{`"prompt": [120], "max_tokens": 0`, "x", "length", 1, 0},
	} {
		body := `{"model": "fake", "echo": true, "logprobs": 1, "temperature": 0, "seed": 1234, ` + c.more
		status, _, text := post(t, url, body+"}")
		a := as[completionAnswer](t, text)
		if status != 200 || len(a.Choices) == 0 || a.Choices[0].Logprobs == nil {
			t.Errorf("%s: %d %s", c.more, status, text)
			continue
		}
		check := func(text, finish string, l *completionLogprobs) {
			if text != c.text || finish != c.finish || len(l.Tokens) != c.tokens || len(l.Values) != c.tokens ||
				len(l.Top) != c.tokens || len(l.Offsets) != c.tokens {
				t.Errorf("%s: %q %s %+v", c.more, text, finish, l)
				return
			}
			if l.Values[0] != nil || l.Top[0] != nil || l.Offsets[0] != 0 {
				t.Errorf("%s: the first token has a log-probability: %+v", c.more, l)
			}
			for i := 1; i < c.tokens; i++ {
				want := -0.25 * float32(i)
				if i >= c.tokens-c.behind {
					want = -0.5
				}
				if *l.Values[i] != want || l.Top[i][l.Tokens[i]] != want {
					t.Errorf("%s: token %d: %v, %v", c.more, i, *l.Values[i], l.Top[i])
				}
				from := len([]rune(text)) - (c.tokens - i) // a token is a character here
				if l.Offsets[i] != from {
					t.Errorf("%s: token %d is at %d, want %d", c.more, i, l.Offsets[i], from)
				}
			}
		}
		check(a.Choices[0].Text, *a.Choices[0].Finish, a.Choices[0].Logprobs)
		if a.Usage.Completion != c.behind*len(a.Choices) {
			t.Errorf("%s: %+v", c.more, a.Usage)
		}
		_, _, stream := post(t, url, body+`, "stream": true}`)
		_, data := frames(t, stream)
		all, written, finish := newCompletionLogprobs(), "", ""
		for _, d := range data[:len(data)-1] {
			e := as[completionAnswer](t, d).Choices[0]
			if e.Index > 0 {
				continue
			}
			if written += e.Text; e.Finish != nil {
				finish = *e.Finish
			}
			if l := e.Logprobs; l != nil {
				all.Tokens, all.Values = append(all.Tokens, l.Tokens...), append(all.Values, l.Values...)
				all.Top, all.Offsets = append(all.Top, l.Top...), append(all.Offsets, l.Offsets...)
			}
		}
		check(written, finish, all)
	}
}

// TestNoTokens: an answer may have none, and then a prompt may fill the context.
func TestNoTokens(t *testing.T) {
	m := newFake()
	_, h := testServer(t, m)
	url := h.URL + "/v1/completions"
	if status, _, text := post(t, url, `{"model": "fake", "prompt": "say ab", "max_tokens": 0}`); status != 200 ||
		as[completionAnswer](t, text).Choices[0].Text != "" {
		t.Errorf("%d %s", status, text)
	}
	for body, want := range map[string]string{
		`{"model": "fake", "prompt": "x", "max_tokens": 0, "min_tokens": 1}`: "min_tokens",
		`{"model": "fake", "prompt": "x", "max_tokens": -1}`:                 "max_tokens",
	} {
		if status, _, text := post(t, url, body); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	m.context = 6
	for max, want := range map[string]int{"0": 200, "1": 400} { // a prompt that fills the context leaves no room
		if status, _, text := post(t, url, `{"model": "fake", "prompt": [1, 2, 3, 4, 5, 6], "max_tokens": `+max+
			`}`); status != want {
			t.Errorf("%s: %d %s", max, status, text)
		}
	}
}
