package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// CheckOptions say what to compare.
type CheckOptions struct {
	Options                 // the model, and the device under test
	Ref     backends.Device // the float64 reference
	Tokens  []int32         // of the prompt; nil: a few made up ones. A block gets random activations
	Limit   float64         // relative L2 that counts as divergence; 0: DefaultLimit, or HalfLimit or RoundedLimit
	OnOp    func(*OpError)  // told of each comparison as it is made
}

// DefaultLimit is the relative L2 error against float64 at which an operator
// counts as diverged: single precision through a whole model stays below 1e-4;
// caches in f16 round in other places than the reference's, which costs up to 2e-3, and
// those in bf16, with three bits less, cost 2.5e-3 in 32 layers of random weights. Those of q8_0
// have steps of a 127th of the largest of 32, those of e4m3 three bits behind the first.
func DefaultLimit(kv tensor.Type) float64 {
	switch kv {
	case tensor.F16:
		return 2e-3
	case tensor.BF16:
		return 6e-3
	case tensor.Q8_0:
		return 2e-2
	case tensor.F8E4M3:
		return 1e-1
	}
	return 1e-4
}

// RoundedLimit is the default limit where the device rounds the activations of
// products to eight bits and the model has weights for which
// it does: each product is off by up to 6e-3, and what follows adds these up. It is for up to limitBlocks blocks:
// independent errors add up with the root of their number, to 5.5e-2 in 32 blocks of random weights.
const RoundedLimit = 5e-2

// limitBlocks is the number of blocks up to which a limit of rounded activations holds as it is.
const limitBlocks = 16

// F8Limit is it where they round activations of several rows to 8-bit floats: each is off by 2.4e-2.
const F8Limit = 2e-1

// BF16Limit is it where products round their activations to bf16: each is
// off by 1e-3, which 22 layers of random weights made 1.1e-2.
const BF16Limit = 3e-2

// HalfLimit is it where products round their activations to f16: each is
// off by up to 3e-4.
const HalfLimit = 2e-3

// rounded is the limit that products of the engine's model ask for which round their activations, 0 if there are
// none: half where they do to f16, and bf16 where weights are that and nothing is rounded.
func (e *Engine) rounded(half, bf16 float64) float64 {
	limit, blocks := 0.0, 0
	opted, _ := backends.OptedIn(e.dev)
	for _, n := range e.first.Nodes {
		blocks = max(blocks, n.Block+1)
	}
	deep := math.Sqrt(max(1, float64(blocks)/limitBlocks))
	for _, n := range e.first.Nodes {
		if !ops.IsProduct(n.Op) {
			continue
		}
		if slices.Contains(opted.Types, n.In[1].Type) {
			return F8Limit * deep
		}
		rel := 0.0
		if k, err := e.dev.Kernel(n); err == nil {
			rel = k.Traits().Tolerance
		}
		switch {
		case rel >= ops.QuantTolerance:
			limit = max(limit, RoundedLimit*deep)
		case rel >= ops.BF16Tolerance:
			limit = max(limit, BF16Limit)
		case rel > 0:
			limit = max(limit, half)
		case n.In[1].Type == tensor.BF16:
			limit = max(limit, bf16)
		}
	}
	return limit
}

// CheckOptIn gives an error where the user opted into something that does nothing for the model: the device rounds
// activations to 8-bit floats, and no weight is of a type for which it does.
func (e *Engine) CheckOptIn() error {
	opted, _ := backends.OptedIn(e.dev)
	return checkOptIn(e.dev, slices.ContainsFunc(e.first.Nodes, func(n *graph.Node) bool {
		return ops.IsProduct(n.Op) && n.Op != ops.LinearID && slices.Contains(opted.Types, n.In[1].Type)
	}))
}

// CheckOptIn is Engine.CheckOptIn for single nodes, whose rows count too.
func CheckOptIn(dev backends.Device, nodes []*graph.Node) error {
	return checkOptIn(dev, slices.ContainsFunc(nodes, func(n *graph.Node) bool { return backends.TakesOptedIn(dev, n) }))
}

func checkOptIn(dev backends.Device, used bool) error {
	p, on := backends.OptedIn(dev)
	if !on || used {
		return nil
	}
	return fmt.Errorf("the fp8 matrix instructions of %s are asked for, "+
		"which take products of several rows with weights of %v: there are none", dev.Info().Name, p.Types)
}

// runLimit is Tolerance where weights are bf16, or products round their activations to f16.
const runLimit = 1e-2

// Tolerance is the relative L2 error that results of a whole run may have, against
// float64 or between prefill and decode: DefaultLimit, and more where products round their activations.
func (e *Engine) Tolerance() float64 {
	return max(DefaultLimit(e.opt.KV), e.rounded(runLimit, runLimit))
}

// RoutedLimit is how far results of prefill and decode may be apart where products round activations and a router
// chooses experts: one that is taken instead of another whose logit is nearly the same changes a result by a good part
// of it. In two blocks of random weights with two of eight experts and activations of eight bits, 1 to 17 of 41
// positions are off from float64 by up to 0.74. What has nothing to do with each other is 1 and more apart.
const RoutedLimit = 0.8

// Routes says whether a step chooses experts by their logits. Where two are nearly the same, rounding decides which is
// taken, and the results of steps that are right differ by more than Tolerance.
func (e *Engine) Routes() bool {
	return slices.ContainsFunc(e.first.Nodes, func(n *graph.Node) bool { return n.Op.Name == "topk" })
}

// OpError is how far a result is from the reference's. Of integers, such as the numbers of experts, RelL2 is 1 where
// any differs.
type OpError struct {
	Step   string  `json:"step"` // "prefill S=9"
	Name   string  `json:"name"` // of the value
	Op     string  `json:"op"`
	Kernel string  `json:"kernel"`
	Block  int     `json:"block"` // -1 outside the repeated blocks
	RelL2  float64 `json:"relative_l2"`
	MaxAbs float64 `json:"max_abs"`
}

// CheckReport is what a check found.
type CheckReport struct {
	Ops      []OpError `json:"ops"`
	Limit    float64   `json:"limit"`
	Diverged *OpError  `json:"diverged,omitempty"` // the first beyond the limit
	Prefill  OpError   `json:"prefill_decode"`     // logits of prefill against those of single steps
	// PrefillLimit is Limit, or twice that where products round activations, or RoutedLimit.
	PrefillLimit float64 `json:"prefill_limit"`
	PrefillOK    bool    `json:"prefill_equals_decode"`
	ReplayOK     bool    `json:"replay_equals_eager"`         // bit for bit, of the prompt at once and of single tokens
	ReplayAt     string  `json:"replay_differs_at,omitempty"` // the first step whose bits differ
	RepeatOK     bool    `json:"repeats_bit_identical"`
	RepeatAt     string  `json:"repeats_differ_at,omitempty"`
	// Verdict is SelfConsistent or Inconsistent. It is never "right": what computes the reference is greta too, from the
	// same model file.
	Verdict string `json:"verdict"`
}

// The verdicts of a check without another implementation's results.
const (
	SelfConsistent = "self-consistent"
	Inconsistent   = "inconsistent"
)

// OK says whether nothing was found.
func (r *CheckReport) OK() bool {
	return r.Diverged == nil && r.PrefillOK && r.ReplayOK && r.RepeatOK
}

// Worst is the operator with the largest relative error.
func (r *CheckReport) Worst() *OpError {
	var worst *OpError
	for i := range r.Ops {
		if worst == nil || !(r.Ops[i].RelL2 <= worst.RelL2) {
			worst = &r.Ops[i]
		}
	}
	return worst
}

// Check runs a prompt and one token behind it, operator by operator, on the
// device and on the reference, which is given the operands that the device computed, and compares: so an
// error is that of its operator, and what rounding does to the steps behind it (experts whose logits are
// close change places) is nobody's. Then it
// checks that prefill gives what single steps give, and that replay gives what
// eager launches give. Nothing else uses the devices meanwhile.
func Check(ctx context.Context, opt CheckOptions) (*CheckReport, error) {
	if opt.KV == tensor.Invalid {
		opt.KV = tensor.F16
	}
	r := &CheckReport{Limit: opt.Limit}
	dev, err := New(ctx, opt.Options)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if err := cmp.Or(dev.ownKeys, dev.CheckOptIn()); err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = max(DefaultLimit(opt.KV), dev.rounded(HalfLimit, 0))
	}
	input, err := dev.checkInput(opt.Tokens)
	if err != nil {
		return nil, err
	}
	if err := r.operators(ctx, dev, &opt, input); err != nil {
		return nil, err
	}
	if err := r.whole(ctx, dev, input); err != nil {
		return r, err
	}
	if r.Verdict = Inconsistent; r.OK() {
		r.Verdict = SelfConsistent
	}
	return r, nil
}

// feed is a prompt, or activations for a block; the last of n is decoded alone.
type feed struct {
	tokens []int32
	x      []float32
	width  int
}

func (f feed) len() int {
	if f.tokens != nil {
		return len(f.tokens)
	}
	return len(f.x) / f.width
}

func (f feed) slice(from, to int) feed {
	if f.tokens != nil {
		return feed{tokens: f.tokens[from:to]}
	}
	return feed{x: f.x[from*f.width : to*f.width], width: f.width}
}

// checkInput takes the tokens given or makes up ten, as many as the context holds.
func (e *Engine) checkInput(tokens []int32) (feed, error) {
	n := min(10, e.opt.Context)
	if e.IsBlock() {
		in := e.first.Input("x")
		if in == nil {
			return feed{}, fmt.Errorf("%s has neither an input tokens nor x", e.opt.Model.Name())
		}
		return feed{x: Activations(n*in.Shape[1], e.opt.Seed), width: in.Shape[1]}, nil
	}
	if tokens == nil {
		v := uint64(max(e.Vocabulary(), 1))
		state := e.opt.Seed
		for range n {
			tokens = append(tokens, int32(splitmix(&state)%v))
		}
	}
	if len(tokens) > e.opt.Context {
		return feed{}, &TooLong{len(tokens), 0, e.opt.Context}
	}
	return feed{tokens: tokens}, nil
}

// Activations makes n values between -1 and 1, the same for a seed everywhere.
func Activations(n int, seed uint64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(splitmix(&seed)>>40)-1<<23) / (1 << 23)
	}
	return x
}

// splitmix is the generator SplitMix64 (Steele, Lea, Flood 2014).
func splitmix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// operators compares launch by launch.
func (r *CheckReport) operators(ctx context.Context, dev *Engine, opt *CheckOptions, input feed) (err error) {
	refOpt := opt.Options
	refOpt.Device, refOpt.like, refOpt.Progress, refOpt.Custom = opt.Ref, dev, nil, nil
	ref, err := New(ctx, refOpt)
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	defer ref.Close()
	a, err := dev.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, a.Close()) }()
	b, err := ref.NewSession()
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	defer func() { err = errlist.Join(err, b.Close()) }()
	n := input.len()
	parts := []feed{input}
	if n > 1 {
		parts = []feed{input.slice(0, n-1), input.slice(n-1, n)}
	}
	for i, part := range parts {
		name := "prefill"
		if i == 1 {
			name = "decode"
		}
		if err := r.step(ctx, a, b, part, fmt.Sprintf("%s S=%d", name, part.len()), opt.OnOp); err != nil {
			return err
		}
	}
	return nil
}

func (r *CheckReport) step(ctx context.Context, a, b *Session, part feed, name string, onOp func(*OpError)) error {
	sa, err := a.prepare(part)
	if err != nil {
		return err
	}
	sb, err := b.prepare(part)
	if err != nil {
		return err
	}
	if len(sa.Program.Launches) != len(sb.Program.Launches) {
		return fmt.Errorf("the device runs %d launches, the reference %d: this is a mistake of the engine",
			len(sa.Program.Launches), len(sb.Program.Launches))
	}
	locs := place(sa.Graph)
	for i := range sa.Program.Launches {
		if err := ctx.Err(); err != nil {
			return err
		}
		la, lb := &sa.Program.Launches[i], &sb.Program.Launches[i]
		// Before the launch, which may write where it has read.
		if err := hand(a, b, la, lb, locs); err != nil {
			return err
		}
		if err := a.stream.Launch(la); err != nil {
			return fmt.Errorf("%v: %w", la.Node, err)
		}
		if err := b.stream.Launch(lb); err != nil {
			return fmt.Errorf("%v on the reference: %w", lb.Node, err)
		}
		for j := range la.Out {
			x, err := readOperand(a.stream, &la.Out[j])
			if err != nil {
				return err
			}
			y, err := readOperand(b.stream, &lb.Out[j])
			if err != nil {
				return err
			}
			e := OpError{Step: name, Name: la.Node.Out[j].Name, Op: la.Node.Op.Name, Kernel: la.Kernel.Name(),
				Block: la.Node.Block}
			e.RelL2, e.MaxAbs = Errors(x, y)
			if la.Out[j].Type == tensor.I32 && e.MaxAbs != 0 {
				e.RelL2 = 1
			}
			r.Ops = append(r.Ops, e)
			if onOp != nil {
				onOp(&e)
			}
			if !(e.RelL2 <= r.Limit) && r.Diverged == nil {
				r.Diverged = &e
			}
		}
	}
	a.pos += sa.Tokens
	b.pos += sb.Tokens
	return nil
}

// hand gives the reference what the device computed of the operands of a launch. Weights and what the caller writes it
// has; states are its own, made of what it was given.
func hand(a, b *Session, la, lb *backends.Launch, locs locations) error {
	for i, v := range la.Node.In {
		if v == nil || locs[v.ID].root.Kind != graph.Computed {
			continue
		}
		x, err := readOperand(a.stream, &la.In[i])
		if err != nil {
			return err
		}
		switch to := &lb.In[i]; to.Type {
		case tensor.F64:
			err = writeOperand(b.stream, to, x)
		case tensor.I32:
			ints := make([]int32, len(x))
			for i, v := range x {
				ints[i] = int32(v)
			}
			err = writeOperand(b.stream, to, ints)
		default:
			err = fmt.Errorf("%v: the reference's operand %d is %s: this is a mistake of the engine", lb.Node, i, to.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeOperand brings elements of the operand's type to a tensor.
func writeOperand[E any](s backends.Stream, o *backends.Operand, v []E) error {
	row := o.RowElems()
	for r := range o.Rows() {
		if err := s.Write(o.Buffer, o.Offset+r*o.Stride, tensor.Bytes(v[r*row:(r+1)*row])); err != nil {
			return err
		}
	}
	return nil
}

// readOperand brings a tensor to the host as float64.
func readOperand(s backends.Stream, o *backends.Operand) ([]float64, error) {
	row := o.RowElems()
	out := make([]float64, o.Rows()*row)
	buf := tensor.New(tensor.U8, o.Type.RowBytes(row)).Data
	for r := range o.Rows() {
		if err := s.Read(o.Buffer, o.Offset+r*o.Stride, buf); err != nil {
			return nil, err
		}
		dst := out[r*row : (r+1)*row]
		if o.Type == tensor.I32 {
			for i, v := range tensor.View[int32](buf) {
				dst[i] = float64(v)
			}
			continue
		}
		if err := quant.DecodeF64(o.Type, dst, buf); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Errors gives ‖x−ref‖/‖ref‖ and the largest |x−ref|; NaN where either has one.
// Against a reference of zeros the first is 0 or infinite.
func Errors(x, ref []float64) (relL2, maxAbs float64) {
	var diff, norm float64
	for i, v := range ref {
		d := x[i] - v
		if x[i] == v { // infinities that agree
			d = 0
		}
		diff += d * d
		norm += v * v
		if d = math.Abs(d); d > maxAbs || d != d {
			maxAbs = d
		}
	}
	if diff == 0 {
		return 0, maxAbs
	}
	return math.Sqrt(diff / norm), maxAbs
}

// prepare gives the step for a feed, its inputs written, ready to launch.
func (s *Session) prepare(f feed) (*Step, error) {
	st, err := s.Step(f.len(), 1)
	if err != nil {
		return nil, err
	}
	if f.tokens != nil {
		err = s.writeTokens(st, f.tokens)
	} else {
		err = s.writeActivations(st, f.x)
	}
	if err == nil {
		err = s.writePositions(st)
	}
	return st, err
}
