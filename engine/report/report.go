// Package report is what greta says about a run: rates, latencies, memory,
// the hash of the output and whether it was right. It is printed as text for
// people and written as JSON whose keys docs/json.md lists.
package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/greta-project/greta/tensor"

	"github.com/greta-project/greta/engine"
)

// Status is how a run ended.
type Status string

// The ways to end.
const (
	OK          Status = "OK"
	Failed      Status = "FAILED"
	Interrupted Status = "INTERRUPTED"
)

// Report is a run's outcome. Pointers are null where nothing was measured.
type Report struct {
	Version string `json:"version"`
	Status  Status `json:"status"`
	Reason  string `json:"reason,omitempty"` // why not OK
	// Disturbed says what disturbed the measurement: other programs, a quota, a binding to some processors.
	Disturbed string `json:"disturbed,omitempty"`
	Mode      string `json:"mode"` // generate | score | measure

	Model   string `json:"model"`
	Kind    string `json:"kind"`   // model | block
	Source  string `json:"source"` // path of the weights, or "synthetic"
	Format  string `json:"format"` // of the weights
	Backend string `json:"backend"`
	Device  string `json:"device"`
	Level   string `json:"level,omitempty"` // instruction set
	Driver  string `json:"driver,omitempty"`
	Threads int    `json:"threads"`
	Paths   []Path `json:"paths,omitempty"` // the device's fast paths
	// Variants are those of kernels that were chosen other than the default, by operator and shape.
	Variants []Variant `json:"variants,omitempty"`
	DType    string    `json:"dtype"` // the mix that was asked for, or that of most of the weights' bytes
	KV       string    `json:"kv"`
	Context  int       `json:"context"`
	Seed     uint64    `json:"seed"`

	PromptTokens    []int32  `json:"prompt_tokens"`
	GeneratedTokens []int32  `json:"generated_tokens"`
	Text            string   `json:"text"` // what GeneratedTokens say, without end tokens and stop strings
	StopReason      string   `json:"stop_reason,omitempty"`
	NLL             *float64 `json:"nll,omitempty"` // mean of -ln p(token | those before)

	Sampling *Sampling       `json:"sampling,omitempty"`
	Logprobs []engine.Chosen `json:"logprobs,omitempty"`

	Cached   *int `json:"cached_tokens,omitempty"`   // of the prompt: not computed, since they were known
	Drafted  *int `json:"drafted_tokens,omitempty"`  // guesses that were computed
	Accepted *int `json:"accepted_tokens,omitempty"` // of them, those that were right
	Steps    *int `json:"steps,omitempty"`

	LoadMS  float64 `json:"load_ms"`
	Prefill Phase   `json:"prefill"`
	Decode  Phase   `json:"decode"`
	// a block's decode steps on a GPU, without the host waiting between them
	Sequence    *Phase   `json:"sequence,omitempty"`
	Greedy      *Phase   `json:"greedy,omitempty"` // as many tokens that a GPU chooses itself, several in a program
	TTFTMS      *float64 `json:"ttft_ms"`
	InterToken  Times    `json:"inter_token_ms"`
	SubmitUS    *Times   `json:"submit_us_per_token,omitempty"` // of a decode step, until its submission to a GPU returned
	HostUS      *Times   `json:"host_us_per_token,omitempty"`   // of a decode step, all but waiting for a GPU
	WeightBytes int      `json:"weight_bytes_per_token"`
	Stored      string   `json:"stored,omitempty"`        // formats of weights that are computed as others
	PeakMemory  int      `json:"peak_memory_bytes"`       // high-water mark of resident memory, mapped weights included
	ModelMemory int      `json:"model_peak_memory_bytes"` // the same before the checks, which have weights of their own
	Private     int      `json:"private_memory_bytes"`    // resident and not backed by a file, before the checks
	OutputHash  string   `json:"output_hash,omitempty"`
	Checks      []Check  `json:"checks"`
}

// Path is what was decided of a fast path of the device.
type Path struct {
	Path   string `json:"path"`
	On     bool   `json:"on"`
	Health string `json:"health"` // passed | failed | unchecked
	Reason string `json:"reason,omitempty"`
}

// Variant is a kernel's variant that was chosen by greta tune, or forced.
type Variant struct {
	Op      string `json:"op"`
	Shape   string `json:"shape,omitempty"` // of the operands, sizes rounded up to powers of two; "" where it was forced
	Variant string `json:"variant"`
	Source  string `json:"source"` // tuned | forced
}

// Sampling is how tokens were chosen.
type Sampling struct {
	Temperature   float64 `json:"temperature"`
	TopK          int     `json:"top_k"`
	TopP          float64 `json:"top_p"`
	MinP          float64 `json:"min_p"`
	RepeatPenalty float64 `json:"repeat_penalty"`
	RepeatLast    int     `json:"repeat_last"`
	TypicalP      float64 `json:"typical_p"`

	FrequencyPenalty float64  `json:"frequency_penalty"`
	PresencePenalty  float64  `json:"presence_penalty"`
	LogitBias        []string `json:"logit_bias,omitempty"` // ID=VALUE

	Seed uint64 `json:"seed"`
}

// Phase is prefill or decode. Of several repeats it gives the median.
type Phase struct {
	Test            string   `json:"test,omitempty"` // pp512, tg128
	Tokens          int      `json:"tokens"`         // in one repeat
	Repeats         int      `json:"repeats"`
	TokensPerSecond *float64 `json:"tokens_per_second"`
	// of the median's 95 % interval, from six repeats on; else of the range
	Low         *float64  `json:"low,omitempty"`
	High        *float64  `json:"high,omitempty"` //
	GBPerSecond *float64  `json:"gb_per_second,omitempty"`
	GFlops      *float64  `json:"gflops,omitempty"`
	Roof        *float64  `json:"roof,omitempty"`  // fraction of the device's peak, where that is known
	Limit       *Limit    `json:"limit,omitempty"` // what the machine can do, measured in the same run
	SamplesMS   []float64 `json:"samples_ms"`      // time of each repeat
}

// Check is a test of the result in the same run.
type Check struct {
	Name      string   `json:"name"`
	OK        bool     `json:"ok"`
	Skipped   bool     `json:"skipped,omitempty"` // it was not made, which is not the same as OK
	RelL2     *float64 `json:"rel_l2,omitempty"`
	MaxAbs    *float64 `json:"max_abs,omitempty"`
	Tolerance *float64 `json:"tolerance,omitempty"` // of rel_l2
	Note      string   `json:"note,omitempty"`
}

// SetPhase fills a phase from the time of each of its repeats.
func (p *Phase) SetPhase(test string, tokens int, samples []time.Duration) {
	p.Test, p.Tokens, p.Repeats = test, tokens, len(samples)
	p.SamplesMS = Millis(samples)
	if tokens == 0 || len(samples) == 0 {
		return
	}
	rates := make([]float64, len(samples))
	for i, d := range samples {
		rates[i] = float64(tokens) / max(d.Seconds(), 1e-9)
	}
	median := Median(rates)
	p.TokensPerSecond = &median
	if len(rates) > 1 {
		low, high, _ := Interval(rates)
		p.Low, p.High = &low, &high
	}
}

// PeakGate is the share of a modelled peak above which a figure is refused as
// an error of measurement.
const PeakGate = 1.05

// SetRoof sets the rates of a phase and their fraction of the device's roofs:
// weight bytes, bytes of caches and operations of one token, GB/s and GFLOP/s of the device
// (0: unknown). It fails where a figure is more than the device can do.
func (p *Phase) SetRoof(bytes, caches, flops, peakGBs, peakGFlops float64) error {
	if p.Roof = nil; p.TokensPerSecond == nil { // not that of fewer repeats
		return nil
	}
	set := func(to **float64, perToken, more, peak float64, unit string) error {
		if perToken == 0 {
			return nil
		}
		rate := *p.TokensPerSecond * perToken / 1e9
		*to = &rate
		if peak == 0 {
			return nil
		}
		all := rate + *p.TokensPerSecond*more/1e9
		if share := all / peak; p.Roof == nil || share > *p.Roof {
			p.Roof = &share
		}
		if all > PeakGate*peak {
			return fmt.Errorf("%s: %.1f %s is %.0f %% of the device's modelled peak of %.1f: a measuring error", p.Test, all,
				unit, 100*all/peak, peak)
		}
		return nil
	}
	if err := set(&p.GBPerSecond, bytes, caches, peakGBs, "GB/s"); err != nil {
		return err
	}
	return set(&p.GFlops, flops, 0, peakGFlops, "GFLOP/s")
}

// Fail turns the status to failed, unless it is no longer OK.
func (r *Report) Fail(reason string) {
	if r.Status == OK || r.Status == "" {
		r.Status, r.Reason = Failed, reason
	}
}

// AddCheck adds a check and fails the run where it failed.
func (r *Report) AddCheck(c Check) {
	r.Checks = append(r.Checks, c)
	if c.OK || c.Skipped {
		return
	}
	text := c.Name + ": " + c.Note
	if c.RelL2 != nil && c.Tolerance != nil {
		text = fmt.Sprintf("%s: relative L2 error %.2e, at most %.0e is allowed", c.Name, *c.RelL2, *c.Tolerance)
	}
	r.Fail(text)
}

// Compare measures got against want over the whole of both: the relative L2
// error ‖got-want‖/‖want‖ and the largest absolute difference. A value that is
// no number makes both infinite.
func Compare(got, want []float32) (relL2, maxAbs float64) {
	if len(got) != len(want) {
		return math.Inf(1), math.Inf(1)
	}
	var diff, norm float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		if math.IsNaN(d) {
			return math.Inf(1), math.Inf(1)
		}
		diff += d * d
		norm += float64(want[i]) * float64(want[i])
		maxAbs = max(maxAbs, math.Abs(d))
	}
	if norm == 0 {
		norm = 1
	}
	return math.Sqrt(diff / norm), maxAbs
}

// HashIDs is the hash of a list of tokens: SHA-256 over little-endian int32.
func HashIDs(ids []int32) string { return hash(tensor.Bytes(ids)) }

// HashFloats is the hash of activations: SHA-256 over little-endian float32.
func HashFloats(x []float32) string { return hash(tensor.Bytes(x)) }

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// JSON writes the report, indented, with a newline at the end. Values that
// JSON cannot hold (infinite errors) become its largest number.
func (r *Report) JSON(w io.Writer) error {
	for i := range r.Checks {
		finite(r.Checks[i].RelL2)
		finite(r.Checks[i].MaxAbs)
	}
	finite(r.NLL)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

func finite(v *float64) {
	if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		*v = math.MaxFloat64
	}
}
