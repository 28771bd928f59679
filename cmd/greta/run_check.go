package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/greta-project/greta/bench/model"
	"github.com/greta-project/greta/engine/report"
)

// checkedPositions is how many positions of a text --check compares at most, from its beginning: the reference takes a
// second or so for each hundred million weights and position.
const checkedPositions = 64

// checkText compares what a text was chosen from with the reference in float64: the logits of the prompt and of the
// tokens behind it, as the device computes them in a prefill, and where the text is greedy each token's choice.
func (r *runner) checkText(ctx context.Context) error {
	tokens := append(append([]int32{}, r.prompt...), r.report.GeneratedTokens...)
	tokens = tokens[:min(len(tokens), checkedPositions, r.engine.Options().Context)]
	if elems := r.weightElems(); elems > maxRefElems {
		r.addCheck(report.Check{Name: "reference", Skipped: true,
			Note: fmt.Sprintf("%.1f billion weights take too long in float64; greta check does it", elems/1e9)})
		return nil
	}
	r.session.Reset()
	var got []float32
	err := r.session.PrefillAll(ctx, tokens, func(_ int, logits []float32) error {
		got = append(got, logits...)
		return nil
	})
	if err != nil {
		return err
	}
	limit := r.engine.Tolerance()
	want, err := r.reference(ctx, &model.Input{Tokens: tokens}, len(tokens))
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	l2, worst := report.Compare(got, want)
	r.addCheck(report.Check{Name: "logits = float64", OK: l2 <= limit, RelL2: &l2, MaxAbs: &worst, Tolerance: &limit,
		Note: fmt.Sprintf("positions 0 to %d", len(tokens)-1)})
	if s := r.flags.sampling; s.Temperature != 0 || s.RepeatPenalty > 1 || s.FrequencyPenalty != 0 ||
		s.PresencePenalty != 0 ||
		len(s.LogitBias) > 0 {
		return nil
	}
	r.addCheck(greedyCheck(tokens, len(r.prompt), want, worst))
	return nil
}

// greedyCheck says whether each token behind a prompt is the most likely one by the reference's logits [tokens,
// vocabulary], or as likely within twice the largest error of a logit.
func greedyCheck(tokens []int32, prompt int, logits []float32, worst float64) report.Check {
	v := len(logits) / len(tokens)
	n, right := 0, 0
	for i := prompt; i < len(tokens); i++ {
		row := logits[(i-1)*v : i*v]
		best := row[0]
		for _, x := range row {
			best = max(best, x)
		}
		if n++; float64(best-row[tokens[i]]) <= 2*worst {
			right++
		}
	}
	return report.Check{Name: "tokens = float64", OK: right == n, Skipped: n == 0,
		Note: fmt.Sprintf("%d of %d tokens are the most likely of the reference", right, n)}
}

// weightElems counts the weights that a decode step reads.
func (r *runner) weightElems() (elems float64) {
	for _, v := range r.engine.Decode().Weights {
		elems += float64(v.Shape.Elems())
	}
	return elems
}

// checkOrSay compares a text with the reference where that is asked for, or says that nothing was compared.
func (r *runner) checkOrSay(ctx context.Context) error {
	if !r.flags.compare {
		r.addCheck(report.Check{Name: "text", Skipped: true,
			Note: "unchecked: nothing was compared with a reference; --check does it, greta check does it operator by operator"})
		return nil
	}
	if r.engine.IsBlock() {
		return errors.New("--check compares a text's tokens; a block has none")
	}
	return r.checkText(ctx)
}
