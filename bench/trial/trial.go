// Package trial decides which kernels of one's own (graph/custom) are used: each is compiled and launched in a child
// process, compared with the operator's float64 reference at several shapes, tuned over its constants and timed beside
// greta's own. docs/custom-kernels.md describes it.
package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/child"
)

// Settings say what is tried, and where.
type Settings struct {
	Device  backends.Device
	Kernels []*custom.Kernel
	// Child is the command that calls Serve with the same device; nil: the trial runs in this process, which a
	// kernel that crashes or hangs takes along.
	Child child.Command
	// Launch is how long a launch may take before it is a hang; 0: DefaultLaunch.
	Launch time.Duration
	Notify func(text string)
	// Keep is the file in which Prepare keeps what trials gave, so that they are not made again for the same device,
	// driver and sources; "": none. Anew makes them again.
	Keep string
	Anew bool
}

// DefaultLaunch is how long a launch at small sizes may take, compilation apart.
const DefaultLaunch = 3 * time.Second

// Refused is the error of a kernel that does something wrong.
type Refused struct {
	Kernel *custom.Kernel
	Why    string
}

func (e *Refused) Error() string {
	return fmt.Sprintf("%v (%s) is refused: %s", e.Kernel, e.Kernel.Source, e.Why)
}

// Decision is what was decided of a kernel for nodes that differ in their rows alone.
type Decision struct {
	Kernel    string         `json:"kernel"`
	Source    string         `json:"source"`
	Node      string         `json:"node"` // "rmsnorm rows=1 K=4096"
	Used      bool           `json:"used"`
	Constants map[string]int `json:"constants,omitempty"`
	Shapes    int            `json:"shapes"` // at which it was checked
	TimeUS    float64        `json:"time_us"`
	OwnUS     float64        `json:"own_us"`         // of greta's own; 0: it has none
	Kept      string         `json:"kept,omitempty"` // when it was tried, where that was not now

	of   *custom.Kernel
	rows float64
}

// Reason says what was measured.
func (d *Decision) Reason() string {
	text := fmt.Sprintf("checked at %d shapes, %.4g µs at %s", d.Shapes, d.TimeUS, d.Node)
	if len(d.Constants) > 0 {
		text += " with " + (&custom.Instance{Kernel: d.of, Constants: d.Constants}).ConstantsText()
	}
	switch {
	case d.OwnUS == 0:
		return text + "; greta has none"
	case !d.Used:
		return text + fmt.Sprintf(", slower than greta's own with %.4g µs", d.OwnUS)
	case d.TimeUS > d.OwnUS:
		return text + fmt.Sprintf(", slower than greta's own with %.4g µs, but always: true", d.OwnUS)
	}
	return text + fmt.Sprintf(", greta's own takes %.4g µs", d.OwnUS)
}

func (d *Decision) String() string {
	word := "used"
	if !d.Used {
		word = "not used"
	}
	text := fmt.Sprintf("kernel %s (%s): %s: %s", d.Kernel, d.Source, word, d.Reason())
	if d.Kept != "" {
		text += "; tried on " + d.Kept + ", --check-kernels tries it again"
	}
	return text
}

// Set are the kernels of a model that are used: an engine.CustomChooser.
type Set struct {
	dev       backends.Device
	kernels   []*custom.Kernel
	decided   map[string][]*Decision // by class
	searching bool                   // which nodes there are is not known yet
	Decisions []*Decision
	kept      map[string]backends.Kernel
}

// find gives the kernel for a node: the first that matches and takes it.
func (s *Set) find(n *graph.Node) *custom.Kernel {
	for _, k := range s.kernels {
		if k.Matches(n) && k.Takes(n) == "" {
			return k
		}
	}
	return nil
}

// Pins says whether a kernel is for a node.
func (s *Set) Pins(n *graph.Node) bool {
	k := s.find(n)
	if k == nil {
		return false
	}
	d := s.decision(k, n)
	return s.searching || d != nil && d.Used
}

// Custom gives the kernel that is used for a node, nil where none is.
func (s *Set) Custom(n *graph.Node) backends.Kernel {
	k := s.find(n)
	if k == nil {
		return nil
	}
	d := s.decision(k, n)
	if d == nil || !d.Used {
		return nil
	}
	key := fmt.Sprint(k.Name, k.File, n.AttrText(), shapes(n), d.Constants)
	if have, ok := s.kept[key]; ok {
		return have
	}
	made := s.make(k, n, d)
	s.kept[key] = made
	return made
}

func (s *Set) make(k *custom.Kernel, n *graph.Node, d *Decision) backends.Kernel {
	i, err := k.Instance(d.Constants)
	if err != nil {
		return nil
	}
	i.Note = d.Reason()
	made, err := backends.CustomKernelsOf(s.dev).CustomKernel(n, i, false)
	if err != nil { // a grid beyond the device's limits at this size
		return nil
	}
	return made
}

// Not says why a node that a kernel is for is run by the device's own.
func (s *Set) Not(n *graph.Node) string {
	why := ""
	for _, k := range s.kernels {
		if !k.Matches(n) {
			continue
		}
		if not := k.Takes(n); not != "" {
			why = not
		} else if d := s.decision(k, n); d == nil {
			why = "it was not tried at these sizes"
		} else if !d.Used {
			why = d.Reason()
		} else {
			why = "operands do not lie as it takes them, or the grid is too large"
		}
		return fmt.Sprintf("not kernel %s: %s", k.Name, why)
	}
	return ""
}

// decision is the one whose number of rows is nearest.
func (s *Set) decision(k *custom.Kernel, n *graph.Node) (best *Decision) {
	rows := rowsOf(n)
	for _, d := range s.decided[class(k, n)] {
		if best == nil || math.Abs(math.Log(d.rows/rows)) < math.Abs(math.Log(best.rows/rows)) {
			best = d
		}
	}
	return best
}

func shapes(n *graph.Node) string {
	var b strings.Builder
	for _, v := range append(slices.Clone(n.In), n.Out...) {
		if v != nil {
			fmt.Fprintf(&b, " %s%v", v.Type, v.Shape)
		}
	}
	return b.String()
}

// varying are the names of sizes in which steps of one model differ.
var varying = []string{"S", "C", "R", "rows"}

// class is what nodes have in common that differ in their rows alone.
func class(k *custom.Kernel, n *graph.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", k.Name, k.File, n.Op.Name, n.AttrText())
	for _, v := range n.In {
		if v != nil {
			fmt.Fprintf(&b, " %s", v.Type)
		}
	}
	return b.String() + " " + sizesText(n, false)
}

// sizesText prints a node's named sizes: "rows=1 K=4096".
func sizesText(n *graph.Node, all bool) string {
	var parts []string
	sizes := custom.Sizes(n)
	for _, name := range custom.Names(n.Op) {
		if v, ok := sizes[name].(float64); ok && (all || !slices.Contains(varying, name)) {
			parts = append(parts, fmt.Sprintf("%s=%.0f", name, v))
		}
	}
	if len(parts) == 0 || !hasNames(n) { // a signature of stars alone: the last size tells
		parts = append(parts, fmt.Sprintf("last=%d", n.Out[0].Shape.Last()))
	}
	return strings.Join(parts, " ")
}

// hasNames says whether a node's signature names a size beside rows.
func hasNames(n *graph.Node) bool {
	sizes := custom.Sizes(n)
	for _, name := range custom.Names(n.Op) {
		if _, ok := sizes[name].(float64); ok && name != "rows" {
			return true
		}
	}
	return false
}

func rowsOf(n *graph.Node) float64 {
	sizes := custom.Sizes(n)
	rows, _ := sizes["rows"].(float64)
	if s, ok := sizes["S"].(float64); ok {
		rows *= s
	}
	return max(1, rows)
}

// Prepare tries the kernels for the nodes of steps of some numbers of tokens and decides. Its error is a *Refused where
// one does something wrong; nil and no error where no kernel is of the device's kind.
func Prepare(ctx context.Context, opt engine.Options, tokens []int, st Settings) (*Set, error) {
	s := &Set{dev: st.Device, decided: map[string][]*Decision{}, searching: true, kept: map[string]backends.Kernel{}}
	var err error
	if s.kernels, err = suited(st); err != nil || len(s.kernels) == 0 {
		return nil, err
	}
	opt.Custom = s
	type found struct {
		k     *custom.Kernel
		cases []*op.Case
	}
	var all []*found
	left := map[*custom.Kernel]string{}
	for _, t := range tokens {
		list, err := engine.Shapes(opt, t, 1)
		if err != nil {
			return nil, err
		}
		for _, sh := range list {
			for _, k := range s.kernels {
				if k.Matches(sh.Node) && k.Takes(sh.Node) != "" && left[k] == "" {
					left[k] = k.Takes(sh.Node)
				}
			}
			k := s.find(sh.Node)
			if k == nil || slices.ContainsFunc(s.decided[class(k, sh.Node)], func(d *Decision) bool {
				return d.rows == rowsOf(sh.Node)
			}) {
				continue
			}
			d := &Decision{Kernel: k.Name, Source: k.Source, Node: sh.Node.Op.Name + " " + sizesText(sh.Node, true), of: k,
				rows: rowsOf(sh.Node)}
			key := class(k, sh.Node)
			s.decided[key] = append(s.decided[key], d)
			s.Decisions = append(s.Decisions, d)
			i := slices.IndexFunc(all, func(f *found) bool { return f.k == k })
			if i < 0 {
				i = len(all)
				all = append(all, &found{k: k})
			}
			sh.Strides = make([]int, len(sh.Node.In)) // rows with gaps are greta's own
			all[i].cases = append(all[i].cases, op.FromShape(sh, 0))
		}
	}
	for _, k := range s.kernels {
		if slices.ContainsFunc(all, func(f *found) bool { return f.k == k }) {
			continue
		}
		why := fmt.Sprintf("%v is for no node of this model", k)
		if left[k] != "" {
			why += ": " + left[k]
		}
		if k.Always {
			return nil, errors.New(why + "; greta dump --stage plan lists them")
		}
		st.Notify(why)
	}
	for _, f := range all {
		try := func() ([]Result, error) { return Try(ctx, st, f.k, f.cases) }
		results, at, err := tryOnce(try, st, f.k, f.cases)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, d := range s.Decisions {
			if d.of != f.k {
				continue
			}
			r := results[n]
			n++
			d.Constants, d.Shapes, d.TimeUS, d.OwnUS = r.Constants, r.Shapes, r.TimeUS, r.OwnUS
			d.Kept = day(at)
			d.Used = f.k.Always || d.OwnUS == 0 || d.TimeUS <= d.OwnUS
			st.Notify(d.String())
		}
	}
	s.searching = false
	return s, nil
}

// suited are the kernels that the device could run. Others are said, and refused where they must be used.
func suited(st Settings) ([]*custom.Kernel, error) {
	var all []*custom.Kernel
	backend := st.Device.Info().Backend
	endings := backends.CustomKernelsOf(st.Device).CustomEndings()
	taken := map[string]bool{}
	for _, k := range st.Kernels {
		if slices.Contains(endings, k.Ending()) && (k.Arch == "" || k.Arch == st.Device.Info().Level) {
			all = append(all, k)
			taken[k.Op+" "+k.Equation] = true
		}
	}
	for _, k := range st.Kernels {
		if slices.Contains(all, k) || taken[k.Op+" "+k.Equation] {
			continue
		}
		why := fmt.Sprintf("%v is %s: the %s backend takes %s", k, k.Ending(), backend, "no kernels of one's own")
		if len(endings) > 0 {
			why = fmt.Sprintf("%v is %s: the %s backend takes %s here", k, k.Ending(), backend,
				strings.Join(endings, " and "))
		}
		if k.Arch != "" && k.Arch != st.Device.Info().Level && slices.Contains(endings, k.Ending()) {
			why = fmt.Sprintf("%v is for %s, this device is %s", k, k.Arch, st.Device.Info().Level)
		}
		why += map[string]string{".comp": "; --backend vulkan runs it", ".spv": "; --backend vulkan runs it"}[k.Ending()]
		if k.Ending() == ".hip" || len(endings) == 0 && strings.Contains(".cubin.hsaco", k.Ending()) {
			why += "; --backend hip runs it"
		}
		if k.Always {
			return nil, errors.New(why)
		}
		st.Notify(why + "; greta's own is used")
	}
	return all, nil
}

// Result is what a trial gave for a case.
type Result struct {
	Constants map[string]int `json:"constants,omitempty"`
	Shapes    int            `json:"shapes"`
	TimeUS    float64        `json:"time_us"`
	OwnUS     float64        `json:"own_us"`
}

// Try tries a kernel on cases, all of its operator, in a child process where there is a command for one. Its error
// is a *Refused where the kernel does something wrong.
func Try(ctx context.Context, st Settings, k *custom.Kernel, cases []*op.Case) ([]Result, error) {
	if st.Launch == 0 {
		st.Launch = DefaultLaunch
	}
	if st.Child == nil {
		return serve(ctx, st.Device, k, cases, func(string, time.Duration) {}, st.Launch)
	}
	r := request{File: k.File, Kernel: k.Name, LaunchMS: st.Launch.Milliseconds()}
	for _, c := range cases {
		w, err := wireOf(c)
		if err != nil {
			return nil, err
		}
		r.Cases = append(r.Cases, w)
	}
	in, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	process, err := child.Start(st.Child, childLimit)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, process.Kill)()
	go func() {
		process.In.Write(in) // an error shows as the child's
		process.In.Close()
	}()
	var hung atomic.Bool
	dog := time.AfterFunc(childLimit, func() { hung.Store(true); process.Kill() })
	defer dog.Stop()
	lines := bufio.NewReader(process.Out)
	var done *message
	stage, limit := "starting", childLimit
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		process.Alive()
		if m.Stage != "" {
			stage, limit = m.Stage, time.Duration(m.LimitMS)*time.Millisecond
			dog.Reset(limit)
		}
		if m.Device != nil && *m.Device != identity(st.Device.Info()) && done == nil {
			done = &message{Done: true, Error: fmt.Sprintf("the child process opened another device: %+v", *m.Device)}
		}
		if m.Done && done == nil {
			done = &m
			dog.Reset(closeLimit)
		}
	}
	io.Copy(io.Discard, process.Out)
	err = process.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case done != nil && done.Refused:
		return nil, &Refused{k, done.Error}
	case done != nil && done.Error != "":
		return nil, errors.New(done.Error)
	case done != nil && len(done.Results) == len(cases):
		return done.Results, nil
	case hung.Load():
		return nil, &Refused{k, fmt.Sprintf("it hangs: %s took longer than %v and was ended", stage, limit)}
	case err == nil:
		err = errors.New("the child process said nothing of a result")
	}
	return nil, &Refused{k, fmt.Sprintf("%s: %v", stage, err)}
}

const (
	childLimit = 2 * time.Minute // without a word
	closeLimit = 5 * time.Second // after the last word
)
