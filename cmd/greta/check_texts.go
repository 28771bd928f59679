package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/plainfile"
)

// expectedTexts is what a JSON file says that a model makes of texts.
type expectedTexts struct {
	Greedy []struct {
		Tokens []int32 `json:"prompt_tokens"`
		Greedy []int32 `json:"greedy"`
	} `json:"greedy"`
	NLLTokens []int32  `json:"nll_tokens"`
	NLL       *float64 `json:"nll"` // mean over the tokens but the first
}

// readTexts reads such a file, which must hold something to compare.
func readTexts(path string) (*expectedTexts, error) {
	data, err := plainfile.Read(path)
	if err != nil {
		return nil, err
	}
	x := &expectedTexts{}
	if err := json.Unmarshal(data, x); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i, g := range x.Greedy {
		if len(g.Tokens) == 0 || len(g.Greedy) == 0 {
			return nil, fmt.Errorf("%s: greedy[%d] has %d prompt_tokens and %d greedy ones; both are expected", path, i,
				len(g.Tokens), len(g.Greedy))
		}
	}
	if (x.NLL != nil) != (len(x.NLLTokens) > 1) {
		return nil, fmt.Errorf("%s: nll_tokens, two at least, and nll belong together", path)
	}
	if len(x.Greedy) == 0 && x.NLL == nil {
		return nil, fmt.Errorf("%s: neither greedy nor nll is in it", path)
	}
	return x, nil
}

// longest is the context that the texts need.
func (x *expectedTexts) longest() int {
	n := len(x.NLLTokens)
	for _, g := range x.Greedy {
		n = max(n, len(g.Tokens)+len(g.Greedy))
	}
	return n
}

// beyond says whether a token is in none of a vocabulary's places, and gives the first.
func (x *expectedTexts) beyond(vocabulary int) (int32, bool) {
	ids := slices.Clone(x.NLLTokens)
	for _, g := range x.Greedy {
		ids = append(append(ids, g.Tokens...), g.Greedy...)
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocabulary }); i >= 0 {
		return ids[i], true
	}
	return 0, false
}

// textsReport is what a comparison with such a file found.
type textsReport struct {
	Expected  string   `json:"expected"`
	Texts     int      `json:"texts"`
	GreedyOK  bool     `json:"greedy_ok"`
	NLL       *float64 `json:"nll,omitempty"`
	NLLError  *float64 `json:"nll_error,omitempty"`
	Tolerance float64  `json:"tolerance"` // of nll_error
	Status    string   `json:"status"`
	wrong     string   // the first mismatch
}

func (r *textsReport) fail(format string, args ...any) {
	r.Status = "FAILED"
	if r.wrong == "" {
		r.wrong = fmt.Sprintf(format, args...)
	}
}

func (r *textsReport) text() string {
	s := fmt.Sprintf("greedy   %d texts, equal: %v\n", r.Texts, r.GreedyOK)
	if r.NLL != nil {
		s += fmt.Sprintf("nll      %.6f, off by %.1e (at most %.0e)\n", *r.NLL, *r.NLLError, r.Tolerance)
	}
	return s + "STATUS=" + r.Status + "\n"
}

func (a *app) checkTexts(ctx context.Context, f *checkFlags, b *bundle) error {
	x, err := readTexts(f.expected)
	if err != nil {
		return usage(err)
	}
	b.fitContext(x.longest())
	if b.opt.Context < x.longest() {
		return usage(&engine.TooLong{Tokens: x.longest(), Context: b.opt.Context})
	}
	e, err := a.load(ctx, b)
	if err != nil {
		return err
	}
	defer e.Close()
	if id, ok := x.beyond(e.Vocabulary()); ok {
		return usagef("%s: token %d, the model's vocabulary has %d", f.expected, id, e.Vocabulary())
	}
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	r := &textsReport{Expected: f.expected, Texts: len(x.Greedy), GreedyOK: true, Tolerance: f.tolerance, Status: "OK"}
	if r.Tolerance == 0 {
		r.Tolerance = 1e-4
	}
	if err := compareTexts(ctx, s, x, r); err != nil {
		return err
	}
	if f.json {
		err = writeJSON(a.out, r)
	} else {
		_, err = fmt.Fprint(a.out, r.text())
	}
	if err == nil && r.wrong != "" {
		err = mismatch("%s: %s", f.expected, r.wrong)
	}
	return err
}

// compareTexts continues the prompts and scores the tokens.
func compareTexts(ctx context.Context, s *engine.Session, x *expectedTexts, r *textsReport) error {
	for i, g := range x.Greedy {
		s.Reset()
		out, err := s.Generate(ctx, g.Tokens, engine.Generation{Max: len(g.Greedy)})
		if err != nil {
			return fmt.Errorf("greedy[%d]: %w", i, err)
		}
		if !slices.Equal(out.Tokens, g.Greedy) {
			r.GreedyOK = false
			j := 0
			for j < len(out.Tokens) && out.Tokens[j] == g.Greedy[j] {
				j++
			}
			r.fail("greedy[%d] differs first at token %d: %v, expected %v", i, j, out.Tokens, g.Greedy)
		}
	}
	if x.NLL == nil {
		return nil
	}
	s.Reset()
	sum := 0.0
	err := s.PrefillAll(ctx, x.NLLTokens, func(i int, logits []float32) error {
		if i+1 == len(x.NLLTokens) {
			return nil
		}
		sum -= logSoftmax(logits, int(x.NLLTokens[i+1]))
		return nil
	})
	if err != nil {
		return err
	}
	nll := sum / float64(len(x.NLLTokens)-1)
	off := math.Abs(nll - *x.NLL)
	r.NLL, r.NLLError = &nll, &off
	if !(off <= r.Tolerance) {
		r.fail("the mean negative log-likelihood is %.6f, expected %.6f: off by %.1e, at most %.0e is allowed", nll, *x.NLL,
			off, r.Tolerance)
	}
	return nil
}
