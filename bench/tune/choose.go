package tune

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// Chooser answers a device's questions for variants: what the user forces first,
// then what was tuned, else the default.
type Chooser struct {
	dev    backends.Device
	tun    backends.Tunable
	best   map[Key]*Entry
	forced map[string]string // by operator

	tuned map[string]string // by key's operator and shape: variants other than the default that were given
	used  map[string]int    // forced operators that a node took
}

// Apply makes a device use what a file says, and the variants that are forced
// ("linear=tile=128x64": operator, variant). file may be nil. It gives nil where the
// device has one variant of everything and nothing is forced.
func Apply(dev backends.Device, file *File, force []string) (*Chooser, error) {
	t, ok := backends.Tuned(dev)
	c := &Chooser{dev: dev, tun: t, best: map[Key]*Entry{}, forced: map[string]string{}, tuned: map[string]string{},
		used: map[string]int{}}
	for _, f := range force {
		op, variant, named := strings.Cut(f, "=")
		if !named || variant == "" || op == "" {
			return nil, fmt.Errorf("--config %s: OPERATOR=VARIANT is expected, such as linear=NAME", f)
		}
		if !ok {
			return nil, fmt.Errorf("--config %s: the kernels of the %s backend have one variant each", f, dev.Info().Backend)
		}
		c.forced[op] = variant
	}
	if !ok {
		return nil, nil
	}
	if file != nil {
		for i := range file.Entries {
			c.best[file.Entries[i].Key] = &file.Entries[i]
		}
	}
	t.Choose(c.choose)
	return c, nil
}

// choose gives the variant of a node, "" for the default.
func (c *Chooser) choose(n *graph.Node) string {
	if v, ok := c.forced[n.Op.Name]; ok {
		// Of an operator some nodes may have a variant that others lack.
		if slices.Contains(c.tun.Variants(n), v) {
			c.used[n.Op.Name]++
			return v
		}
		return ""
	}
	if len(c.best) == 0 {
		return ""
	}
	e := c.best[KeyOf(c.dev, n)]
	if e == nil {
		return ""
	}
	all := c.tun.Variants(n)
	i := slices.Index(all, e.Best)
	if i <= 0 {
		return "" // the default, or one that this version does not have
	}
	k := slices.IndexFunc(e.Tried, func(t Trial) bool { return t.Variant == e.Best })
	if e.Tried[k].Code != codeOf(c.dev, n, e.Best) {
		return "" // other code than what was measured
	}
	c.tuned[e.Op+" "+e.Shape] = e.Best
	return e.Best
}

// Refuse says which forced variants none of these nodes has, and what there is instead.
func (c *Chooser) Refuse(nodes []*graph.Node) error {
	if c == nil {
		return nil
	}
	for _, op := range slices.Sorted(maps.Keys(c.forced)) {
		var have, others []string
		for _, n := range nodes {
			all := c.tun.Variants(n)
			switch {
			case n.Op.Name == op:
				have = append(have, all...)
			case len(all) > 1:
				others = append(others, n.Op.Name)
			}
		}
		if slices.Contains(have, c.forced[op]) {
			continue
		}
		slices.Sort(have)
		slices.Sort(others)
		text := "they have " + strings.Join(slices.Compact(have), ", ")
		if len(have) == 0 {
			text = "operators of this model with variants are " + strings.Join(slices.Compact(others), ", ")
			if len(others) == 0 {
				text = "no operator of this model has any"
			}
		}
		return fmt.Errorf("--config %s=%s: no kernel of this model's %s has a variant of this name on the %s backend; %s", op,
			c.forced[op], op, c.dev.Info().Backend, text)
	}
	return nil
}

// Close gives the device its defaults back.
func (c *Chooser) Close() {
	if c != nil {
		c.tun.Choose(func(*graph.Node) string { return "" })
	}
}

// Check is called when all kernels have been chosen: it is an error if no
// node could take what was forced.
func (c *Chooser) Check() error {
	if c == nil {
		return nil
	}
	for _, op := range slices.Sorted(maps.Keys(c.forced)) {
		if c.used[op] == 0 {
			return fmt.Errorf("--config %s=%s: no %s of this model has a variant of this name on the %s backend; greta tune "+
				"lists them", op, c.forced[op], op, c.dev.Info().Backend)
		}
	}
	return nil
}

// Choices lists what was chosen other than the defaults: operators and shapes with
// their variants, and forced ones.
func (c *Chooser) Choices() (tuned, forced map[string]string) {
	if c == nil {
		return nil, nil
	}
	return maps.Clone(c.tuned), maps.Clone(c.forced)
}
