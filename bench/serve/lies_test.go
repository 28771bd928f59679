package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestServersThatLie are told, and none makes the client wait without end or believe what cannot be.
func TestServersThatLie(t *testing.T) {
	models := func(w http.ResponseWriter) { fmt.Fprint(w, `{"data": [{"id": "m"}]}`) }
	answer := func(prompt, tokens int, event func(w http.ResponseWriter, text string)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				Prompt string
				Stream bool
				Max    int `json:"max_tokens"`
			}
			_ = json.NewDecoder(r.Body).Decode(&q)
			switch {
			case r.Method == http.MethodGet:
				models(w)
			case r.URL.Path == "/tokenize":
				w.WriteHeader(http.StatusNotFound)
			case !q.Stream:
				fmt.Fprintf(w, `{"usage": {"prompt_tokens": %d}}`, prompt*len(strings.Fields(q.Prompt)))
			default:
				w.Header().Set("Streamed", "yes")
				for range q.Max {
					event(w, `{"choices": [{"text": "ba "}]}`)
				}
				event(w, fmt.Sprintf(`{"usage": {"prompt_tokens": 3, "completion_tokens": %d}}`, tokens*q.Max))
				event(w, "[DONE]")
			}
		}
	}
	spaced := func(w http.ResponseWriter, text string) { fmt.Fprintf(w, "data: %s\n\n", text) }
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string // "": no error, and no figure is wrong
	}{
		"no blank behind data:": {answer(1, 1, func(w http.ResponseWriter, text string) {
			fmt.Fprintf(w, "data:%s\n\n", text)
		}), ""},
		"less than no tokens": {answer(1, -1, spaced), "tokens by its usage"},
		"a word of a million": {answer(1_000_000, 1, spaced), "no tokenizer"},
		"a list that never comes": {func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, "no answer within"},
		"a list without end":       {func(w http.ResponseWriter, r *http.Request) { endless(w, r) }, "more than"},
		"words that steer screens": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2J", 500) }, `\x1b`},
		"more behind the end": {func(w http.ResponseWriter, r *http.Request) {
			answer(1, 1, spaced)(w, r)
			if w.Header().Get("Streamed") != "" {
				endless(w, r)
			}
		}, ""},
	} {
		s := httptest.NewServer(c.serve)
		timeout := 20 * time.Second
		if name == "a list that never comes" {
			timeout = 50 * time.Millisecond
		}
		r, err := Run(context.Background(), Options{URL: s.URL, Users: []int{1}, Burst: 1, Input: 5, Output: 4, N: 2,
			Timeout: timeout})
		s.CloseClientConnections()
		s.Close()
		told := ""
		if err != nil {
			told = err.Error()
		} else {
			told = strings.Join(r.Levels[0].Wrong, "; ")
		}
		if (told == "") != (c.want == "") || !strings.Contains(told, c.want) || strings.Contains(told, "\x1b") {
			t.Errorf("%s: told %q, want %q", name, told, c.want)
		}
	}
}

// endless writes until the client leaves.
func endless(w http.ResponseWriter, r *http.Request) {
	block := []byte(strings.Repeat(" ", 1<<16))
	for r.Context().Err() == nil {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
