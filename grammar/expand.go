// From statements to alternatives: the shapes of a set of statements that all
// hold, and which sets no value meets.

package grammar

import (
	"fmt"
	"slices"
)

const (
	maxShapes = 400    // alternatives of one place
	maxTries  = 200000 // alternatives tried in one compilation
	easySteps = 64     // alternatives of one place before those that contradict each other are looked for
)

// open is a statement yet to be unfolded, with those that led to it.
type open struct {
	l  lit
	up *open
}

// expansion unfolds one set of statements.
type expansion struct {
	c     *compiler
	out   []*shape
	steps int
}

// shapes gives the alternatives of statements that all hold.
func (c *compiler) shapes(lits []lit) ([]*shape, error) {
	e := &expansion{c: c}
	var todo []*open
	for _, l := range lits {
		todo = append(todo, &open{l: l})
	}
	err := e.unfold(anyShape(), todo, nil, map[lit]bool{})
	return e.out, err
}

// choice is a disjunction that waits, and the statement it comes from.
type choice struct {
	list [][]lit
	from *open
}

// unfold applies statements until only choices are left, then tries each.
func (e *expansion) unfold(s *shape, todo []*open, choices []choice, done map[lit]bool) error {
	c := e.c
	if c.budget--; c.budget < 0 {
		return refuse(c.at, "anyOf/oneOf/allOf", "its alternatives are too many to be multiplied out")
	}
	for len(todo) > 0 {
		o := todo[0]
		todo = todo[1:]
		if o.l == litTrue || done[o.l] {
			if o.l != litTrue && loops(o) {
				return refuse(c.lits[o.l].v, "$ref", "it leads back to itself")
			}
			continue
		}
		if o.l == litFalse {
			return nil
		}
		if k := c.lits[o.l]; k.keyword == "" && done[c.litOf(k.v, "", !k.not)] {
			return nil
		}
		done[o.l] = true
		m, err := c.say(o.l)
		if err != nil {
			return err
		}
		for _, f := range m.apply {
			f(s)
		}
		if s.types == 0 {
			return nil
		}
		for i := len(m.all) - 1; i >= 0; i-- { // depth first, so that types come early
			todo = append([]*open{{m.all[i], o}}, todo...)
		}
		for _, list := range m.any {
			choices = append(slices.Clip(choices), choice{list, o})
		}
	}
	if e.steps++; e.steps > easySteps && c.contradicts(s) {
		return nil
	}
	if len(choices) == 0 {
		if c.dead(s) {
			return nil
		}
		if e.out = append(e.out, s); len(e.out) > maxShapes {
			return refuse(c.at, "anyOf/oneOf/allOf", "it has more than %d alternatives", maxShapes)
		}
		return nil
	}
	pick := 0 // the choice with the fewest alternatives
	for i, ch := range choices {
		if len(ch.list) < len(choices[pick].list) {
			pick = i
		}
	}
	ch := choices[pick]
	others := slices.Delete(slices.Clone(choices), pick, pick+1)
	for i, alternative := range ch.list {
		next, seen := s, done
		if i < len(ch.list)-1 {
			next, seen = s.clone(), make(map[lit]bool, len(done))
			for l := range done {
				seen[l] = true
			}
		}
		var list []*open
		for _, l := range alternative {
			list = append(list, &open{l, ch.from})
		}
		if err := e.unfold(next, list, others, seen); err != nil {
			return err
		}
	}
	return nil
}

// loops says whether a statement is among those that led to it.
func loops(o *open) bool {
	for up := o.up; up != nil; up = up.up {
		if up.l == o.l {
			return true
		}
	}
	return false
}

// dead says that a shape's scalars match nothing and it has no other types; it
// drops types that cannot be.
func (c *compiler) dead(s *shape) bool {
	if s.types&typeString != 0 && (len(s.str) > 0 || s.maxL >= 0) && c.shapeText(s) == rxNone {
		s.types &^= typeString
	}
	if s.types&typeNumber != 0 && len(s.num) > 0 && !c.a.alive(c.a.and(append([]rx{c.number}, s.num...)...)) {
		s.types &^= typeNumber
	}
	if s.maxP >= 0 && s.minP > s.maxP {
		s.types &^= typeObject
	}
	if s.maxI >= 0 && s.minI > s.maxI {
		s.types &^= typeArray
	}
	return s.types == 0
}

// contradicts says that nothing is as a shape of objects has it so far: a member that it requires cannot be. It drops
// objects where there are other types. By it conditions one behind the other, of which each asks for another value of
// a member, are told apart, where all their combinations would be too many.
func (c *compiler) contradicts(s *shape) bool {
	if s.types&typeObject == 0 || len(s.required) == 0 {
		return false
	}
	at := c.at
	none, err := c.noObject(s, 3)
	if c.at = at; err == nil && none {
		s.types &^= typeObject
	}
	return s.types == 0
}

// textsOf gives the strings that meet a statement.
func (c *compiler) textsOf(l lit) (rx, error) {
	list, err := c.shapes([]lit{l})
	if err != nil {
		return rxNone, err
	}
	r := rxNone
	for _, s := range list {
		if s.types&typeString != 0 {
			r = c.a.alt(r, c.shapeText(s))
		}
	}
	return r, nil
}

// conj sorts statements; nil, false where they contradict each other.
func (c *compiler) conj(lits []lit) ([]lit, bool) {
	out := slices.Clone(lits)
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > 0 && out[0] == litTrue {
		out = out[1:]
	}
	if len(out) > 0 && out[0] == litFalse {
		return nil, false
	}
	return out, true
}

// apart says that no value meets both statements: surely where true.
func (c *compiler) apart(x, y lit) (bool, error) {
	if x > y {
		x, y = y, x
	}
	key := [2]lit{x, y}
	if known, ok := c.disjoint[key]; ok {
		return known, nil
	}
	c.disjoint[key] = false // while it is being found out: perhaps not
	none, err := c.none([]lit{x, y}, 6)
	if err != nil {
		return false, err
	}
	c.disjoint[key] = none
	return none, nil
}

// none says that no value meets the statements; false where that is not seen
// within a depth.
func (c *compiler) none(lits []lit, depth int) (bool, error) {
	list, ok := c.conj(lits)
	if !ok {
		return true, nil
	}
	if depth == 0 || len(list) < 2 {
		return len(list) == 1 && list[0] == litFalse, nil
	}
	key := fmt.Sprint(list, depth)
	if known, ok := c.nones[key]; ok {
		return known, nil
	}
	c.nones[key] = false // while it is being found out: perhaps not
	none, err := c.noShape(list, depth)
	if err == nil {
		c.nones[key] = none
	}
	return none, err
}

// noShape says that none of the statements' alternatives can be.
func (c *compiler) noShape(list []lit, depth int) (bool, error) {
	shapes, err := c.shapes(list)
	if err != nil {
		return false, err
	}
	for _, s := range shapes {
		if s.types&^(typeObject|typeArray) != 0 {
			return false, nil
		}
		empty := true
		if s.types&typeObject != 0 {
			if empty, err = c.noObject(s, depth); err != nil {
				return false, err
			}
		}
		if empty && s.types&typeArray != 0 {
			if empty, err = c.noArray(s, depth); err != nil {
				return false, err
			}
		}
		if !empty {
			return false, nil
		}
	}
	return true, nil
}

// noObject says that a required member cannot be.
func (c *compiler) noObject(s *shape, depth int) (bool, error) {
	for _, key := range s.required {
		for _, names := range s.names {
			if !c.a.matches(names, key) {
				return true, nil
			}
		}
		var rules []lit
		for _, v := range s.closed {
			rules = append(rules, c.memberRules(v, key)...)
		}
		rules = append(rules, s.oneRules(key)...)
		if none, err := c.none(rules, depth-1); none || err != nil {
			return none, err
		}
	}
	return false, nil
}

func (c *compiler) noArray(s *shape, depth int) (bool, error) {
	for i := range min(s.minI, 4) {
		if none, err := c.none(c.itemRules(s, i), depth-1); none || err != nil {
			return none, err
		}
	}
	return false, nil
}

// itemRules gives what a shape says of the item at a place.
func (c *compiler) itemRules(s *shape, at int) []lit {
	var out []lit
	for _, v := range s.items {
		if first, other := itemSchemas(v); at < len(first) {
			out = append(out, c.is(first[at]))
		} else if other != nil {
			out = append(out, c.is(other))
		}
	}
	return out
}
