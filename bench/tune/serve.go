package tune

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// job is what a child process is asked to try.
type job struct {
	Case     *wireCase     `json:"case"`
	Variants []string      `json:"variants"`
	Rounds   int           `json:"rounds"`
	Samples  int           `json:"samples"` // of each variant in a round, at least
	MinTime  time.Duration `json:"min_time"`
	Warm     bool          `json:"warm"`
	Roofs    record.Roofs  `json:"roofs"`
}

// message is a line from the child: what it begins, or what it found.
type message struct {
	Begin   string         `json:"begin,omitempty"` // a variant
	Variant string         `json:"variant,omitempty"`
	Result  *record.Result `json:"result,omitempty"`
	Error   string         `json:"error,omitempty"` // of the variant, or with no variant of the job
	Done    bool           `json:"done,omitempty"`
}

// Serve is the child: it reads a job, tries its variants in turn, round by round,
// and writes a line before and after each. A variant that was wrong is not tried
// again. A variant may end or hold this process: the parent sees to that.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func() (backends.Device, error)) error {
	enc := json.NewEncoder(out)
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("a job of greta tune is expected on standard input: %w", err)
	}
	c, err := j.Case.toCase()
	if err != nil {
		return err
	}
	dev, err := open()
	if err != nil {
		return errlist.Join(err, enc.Encode(message{Error: err.Error()}))
	}
	defer dev.Close()
	ref, err := op.NewReference(ctx, c)
	if err != nil {
		return errlist.Join(err, enc.Encode(message{Error: err.Error()}))
	}
	rejected := map[string]bool{}
	for round := range j.Rounds {
		for i := range j.Variants {
			// Every second round backwards, so that no variant is always the first.
			v := j.Variants[i]
			if round%2 == 1 {
				v = j.Variants[len(j.Variants)-1-i]
			}
			if rejected[v] {
				continue
			}
			if err := enc.Encode(message{Begin: v}); err != nil {
				return err
			}
			results, err := op.Measure(ctx, dev, c, op.Options{Cold: !j.Warm, OrWarm: !j.Warm, Warm: j.Warm,
				Repetitions: j.Samples, MinTime: j.MinTime, Config: v, Roofs: j.Roofs, Reference: ref})
			m := message{Variant: v}
			switch {
			case err != nil:
				m.Error = err.Error()
			case len(results) != 1:
				m.Error = fmt.Sprintf("%d results", len(results))
			default:
				m.Result = &results[0]
			}
			rejected[v] = m.Result == nil || m.Result.Verdict != record.OK
			if err := enc.Encode(m); err != nil {
				return err
			}
		}
	}
	return enc.Encode(message{Done: true})
}
