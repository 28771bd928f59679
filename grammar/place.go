// A place is where a value stands under a set of statements: the expression of
// its scalars, and what its objects and arrays are made of.

package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// maxPlaces bounds the sets of statements that one schema leads to.
const maxPlaces = 50000

type vnode struct {
	lits    []lit
	scalar  rx
	objects []*objectSpec
	arrays  []*arraySpec
	live    bool // some value meets it
	tagged  *taggedValue
}

// objectSpec is one alternative of objects. Members come in any order.
type objectSpec struct {
	keys     []string // in the schema's order
	rank     []int32  // by the trie's number of a text: the key's place in keys
	trie     int32
	values   [][]variant // of each key
	required []uint64
	needed   int // how many are required
	others   []keyClass
	min, max int
	duties   int // obligations: "some member is …"
	bare     *bareMembers
}

// bareMembers is how members stand that no braces hold: what is before and behind a name, and between two members.
type bareMembers struct{ before, behind, between rx }

// variant is one way to read a value: where it stands, and what it fulfils.
type variant struct {
	node  int32
	duty  uint32
	which int32 // of a list whose values come once each, from 1; 0: none
}

// keyClass is a kind of key that is not named.
type keyClass struct {
	keys   rx
	values []variant
}

type arraySpec struct {
	first    [][]variant // the items at the first places
	other    []variant
	min, max int
	need     []int          // for each duty: how often it must be fulfilled
	most     []int          // and may; < 0: any number
	from     []int          // a duty that counts only from an index on
	to       []int          // and up to one; < 0: any
	distinct *distinctItems // nil: items are not told apart
}

// place gives the number of the place of statements.
func (c *compiler) place(lits []lit) int32 {
	list, ok := c.conj(lits)
	key := fmt.Sprint(list)
	if !ok {
		key = "never"
	}
	id, known := c.nodeIDs[key]
	if !known {
		id = int32(len(c.nodes))
		n := &vnode{lits: list}
		if !ok {
			n.lits = []lit{litFalse}
		}
		c.nodes = append(c.nodes, n)
		c.nodeIDs[key] = id
		c.a.spend(8)
	}
	return id
}

// explore fills in every place that the root leads to.
func (c *compiler) explore() error {
	for i := 0; i < len(c.nodes); i++ {
		if i > maxPlaces {
			return refuse(c.at, "$ref", "the schema has more than %d places", maxPlaces)
		}
		if err := c.fill(c.nodes[i]); err != nil {
			return err
		}
	}
	c.prune()
	return nil
}

// fill makes what a place is of its statements.
func (c *compiler) fill(n *vnode) (err error) {
	defer func() {
		if r := recover(); r == (tooComplex{}) {
			err = c.complex(n.lits)
		} else if r != nil {
			panic(r)
		}
	}()
	list, err := c.shapes(n.lits)
	if err != nil {
		return err
	}
	var scalars []rx
	for _, s := range list {
		scalars = append(scalars, c.scalars(s))
		if s.types&typeObject != 0 {
			o, err := c.object(s)
			if err != nil {
				return err
			}
			if o != nil {
				n.objects = append(n.objects, o)
			}
		}
		if s.types&typeArray != 0 {
			ar, err := c.array(s)
			if err != nil {
				return err
			}
			if ar != nil {
				n.arrays = append(n.arrays, ar)
			}
		}
	}
	n.scalar = c.a.alt(scalars...)
	return nil
}

// complex refuses statements whose automata are too large, by the keywords that make some.
func (c *compiler) complex(lits []lit) error {
	var names []string
	at := c.at
	seen := map[lit]bool{}
	var look func([]lit)
	look = func(list []lit) {
		for _, l := range list {
			if seen[l] || c.meanings[l] == nil {
				continue
			}
			seen[l] = true
			if k := c.lits[l]; slices.Contains(automata, k.keyword) && !slices.Contains(names, k.keyword) {
				if len(names) == 0 {
					at = k.v
				}
				names = append(names, k.keyword)
			}
			look(c.meanings[l].all)
			for _, alternatives := range c.meanings[l].any {
				for _, one := range alternatives {
					look(one)
				}
			}
		}
	}
	look(lits)
	return &Refused{Keyword: strings.Join(names, ", "), At: at.path(), Why: tooComplex{}.Error(), err: tooComplex{}}
}

// automata are the keywords of which automata are made.
var automata = []string{"pattern", "format", "minLength", "maxLength", "multipleOf", "minimum", "maximum",
	"exclusiveMinimum", "exclusiveMaximum", "enum", "const", "propertyNames", "patternProperties", "properties", "not"}

// object makes the spec of a shape's objects; nil where there are none.
func (c *compiler) object(s *shape) (*objectSpec, error) {
	o := &objectSpec{min: s.minP, max: s.maxP, duties: len(s.some)}
	if len(s.some) > 8 {
		return nil, refuse(c.at, "not", "more than 8 members are asked for by what they are not")
	}
	if s.minP > 30000 || s.maxP > 30000 {
		return nil, refuse(c.at, "minProperties/maxProperties", "more than 30000 members are not counted")
	}
	seen := map[string]bool{}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			o.keys = append(o.keys, key)
		}
	}
	for _, v := range s.closed {
		if props := v.get("properties"); props != nil {
			for _, key := range props.keys {
				add(key)
			}
		}
	}
	required := map[string]bool{}
	for _, key := range s.required {
		add(key)
		required[key] = true
	}
	if c.tags != nil {
		if i := slices.IndexFunc(o.keys, c.endsTag); i >= 0 {
			return nil, refuse(c.at, "properties", "the name %q has a tag of the model's calls in it", o.keys[i])
		}
	}
	if len(o.keys) > 60000 {
		return nil, refuse(c.at, "properties", "more than 60000 names")
	}
	t, id := c.a.trie(o.keys)
	t.keys = true
	o.trie, o.rank = id, make([]int32, len(o.keys))
	o.required = make([]uint64, (len(o.keys)+63)/64)
	for i, key := range o.keys {
		at, _ := slices.BinarySearch(t.texts, key)
		o.rank[at] = int32(i)
		var rules []lit
		for _, names := range s.names {
			if !c.a.matches(names, key) {
				rules = append(rules, litFalse)
			}
		}
		for _, v := range s.closed {
			rules = append(rules, c.memberRules(v, key)...)
		}
		rules = append(rules, s.oneRules(key)...)
		var duty uint32
		for d, some := range s.some {
			if c.a.matches(some.keys, key) {
				duty |= 1 << d
			}
		}
		o.values = append(o.values, c.variants(rules, s.some, duty))
		if required[key] {
			o.required[i>>6] |= 1 << (i & 63)
			o.needed++
		}
	}
	if err := c.otherKeys(o, s); err != nil {
		return nil, err
	}
	// A name that the schema does not have may be written twice, and is one member to whoever reads the object.
	if len(o.others) > 0 && o.min > o.needed+1 {
		return nil, refuse(c.at, "minProperties", "%d members are asked for, %d are required by name, and of "+
			"the others only one is known to differ from the rest; require more, or allow no other names", o.min, o.needed)
	}
	return o, nil
}

// oneRules gives what else is said of the member of a key.
func (s *shape) oneRules(key string) []lit {
	var out []lit
	for _, o := range s.one {
		if o.key == key {
			out = append(out, o.is)
		}
	}
	return out
}

// variants gives the ways to read a member: with each set of the duties that its
// key allows fulfilled, or none.
func (c *compiler) variants(rules []lit, some []someMember, duty uint32) []variant {
	out := []variant{{node: c.place(rules)}}
	for d, s := range some {
		if duty>>d&1 == 0 {
			continue
		}
		for _, v := range slices.Clone(out) {
			out = append(out, variant{node: c.place(append(slices.Clone(c.nodes[v.node].lits), s.is)), duty: v.duty | 1<<d})
		}
	}
	return out
}

// otherKeys divides the keys that are not named into classes by the patterns.
func (c *compiler) otherKeys(o *objectSpec, s *shape) error {
	type class struct {
		keys    rx
		matched map[string]bool
		duty    uint32
	}
	rest := c.a.text
	if len(o.keys) > 0 {
		rest = c.a.notText(c.a.oneOf(o.trie, nil))
	}
	rest = c.writable(c.a.and(append([]rx{rest}, s.names...)...))
	classes := []class{{rest, map[string]bool{}, 0}}
	divide := func(r rx, mark func(*class)) error {
		var out []class
		for _, cl := range classes {
			in, not := c.a.and(cl.keys, r), c.a.and(cl.keys, c.a.notText(r))
			if c.a.alive(in) {
				with := class{in, map[string]bool{}, cl.duty}
				for k := range cl.matched {
					with.matched[k] = true
				}
				mark(&with)
				out = append(out, with)
			}
			if c.a.alive(not) {
				out = append(out, class{not, cl.matched, cl.duty})
			}
		}
		if classes = out; len(classes) > 64 {
			return refuse(c.at, "patternProperties", "the patterns overlap in more than 64 ways")
		}
		return nil
	}
	for _, v := range s.closed {
		if patterns := v.get("patternProperties"); patterns != nil {
			for _, src := range patterns.keys {
				if err := divide(c.regexes[src], func(cl *class) { cl.matched[src] = true }); err != nil {
					return err
				}
			}
		}
	}
	for d, some := range s.some {
		if err := divide(some.keys, func(cl *class) { cl.duty |= 1 << d }); err != nil {
			return err
		}
	}
	for _, cl := range classes {
		var rules []lit
		for _, v := range s.closed {
			rules = append(rules, c.otherRules(v, cl.matched)...)
		}
		if _, ok := c.conj(rules); ok && c.a.alive(cl.keys) {
			o.others = append(o.others, keyClass{cl.keys, c.variants(rules, s.some, cl.duty)})
		}
	}
	return nil
}

// otherRules is memberRules for a key that is not named and matches patterns.
func (c *compiler) otherRules(v *value, matched map[string]bool) []lit {
	var out []lit
	if patterns := v.get("patternProperties"); patterns != nil {
		for _, src := range patterns.keys {
			if matched[src] {
				out = append(out, c.is(patterns.members[src]))
			}
		}
	}
	if extra := v.get("additionalProperties"); extra != nil && len(out) == 0 {
		out = append(out, c.is(extra))
	}
	return out
}

// array makes the spec of a shape's arrays.
func (c *compiler) array(s *shape) (*arraySpec, error) {
	ar := &arraySpec{min: s.minI, max: s.maxI}
	duties := slices.Clone(s.contains)
	for _, d := range duties {
		ar.need, ar.most = append(ar.need, d.min), append(ar.most, d.max)
		ar.from, ar.to = append(ar.from, 0), append(ar.to, -1)
	}
	for _, d := range s.someItem {
		ar.need, ar.most = append(ar.need, 1), append(ar.most, -1)
		ar.from, ar.to = append(ar.from, d.from), append(ar.to, d.max)
		d.max, d.min = -1, 1
		duties = append(duties, d)
	}
	if len(duties) > 4 {
		return nil, refuse(c.at, "contains", "more than 4 conditions of what an array contains")
	}
	for i := range duties {
		if ar.need[i] > 200 || ar.most[i] > 200 {
			return nil, refuse(c.at, "contains", "more than 200 items are to be counted")
		}
	}
	long := 0
	for _, v := range s.items {
		first, _ := itemSchemas(v)
		long = max(long, len(first))
	}
	for i := range long {
		ar.first = append(ar.first, c.itemVariants(c.itemRules(s, i), duties, ar.most))
	}
	ar.other = c.itemVariants(c.itemRules(s, long), duties, ar.most)
	if s.unique != nil && (ar.max < 0 || ar.max > 1) {
		if long > 0 || len(duties) > 0 || !c.distinct(ar, c.itemRules(s, 0)) {
			return nil, refuse(s.unique, "uniqueItems", "where there may be two items, they must be of a list of at most %d "+
				"values, and neither prefixItems nor contains stand beside it", mostDistinct)
		}
	}
	return ar, nil
}

func (c *compiler) itemVariants(rules []lit, duties []containing, most []int) []variant {
	out := []variant{{node: c.place(rules)}}
	for d, duty := range duties {
		for i, v := range slices.Clone(out) {
			base := c.nodes[v.node].lits
			out = append(out, variant{node: c.place(append(slices.Clone(base), duty.is)), duty: v.duty | 1<<d})
			if most[d] >= 0 { // what does not count must not be it
				out[i] = variant{node: c.place(append(slices.Clone(base), duty.other)), duty: v.duty}
			}
		}
	}
	return out
}

// prune finds the places that some value meets, and takes out what leads to others.
func (c *compiler) prune() {
	for changed := true; changed; {
		changed = false
		for _, n := range c.nodes {
			if !n.live && c.possible(n) {
				n.live, changed = true, true
			}
		}
	}
	live := func(list []variant) []variant {
		return slices.DeleteFunc(list, func(v variant) bool { return !c.nodes[v.node].live })
	}
	for _, n := range c.nodes {
		n.objects = slices.DeleteFunc(n.objects, func(o *objectSpec) bool { return !c.objectPossible(o) })
		n.arrays = slices.DeleteFunc(n.arrays, func(a *arraySpec) bool { return !c.arrayPossible(a) })
	}
	for _, n := range c.nodes {
		for _, o := range n.objects {
			for i := range o.values {
				o.values[i] = live(o.values[i])
			}
			for i := range o.others {
				o.others[i].values = live(o.others[i].values)
			}
			o.others = slices.DeleteFunc(o.others, func(k keyClass) bool { return len(k.values) == 0 })
		}
		for _, a := range n.arrays {
			for i := range a.first {
				if a.first[i] = live(a.first[i]); len(a.first[i]) == 0 {
					a.max = atMost(a.max, i)
					break
				}
			}
			if a.other = live(a.other); len(a.other) == 0 {
				a.max = atMost(a.max, len(a.first))
			}
			if a.distinct != nil {
				a.max = atMost(a.max, len(a.other))
			}
		}
	}
}

func (c *compiler) possible(n *vnode) bool {
	return n.scalar != rxNone || slices.ContainsFunc(n.objects, c.objectPossible) ||
		slices.ContainsFunc(n.arrays, c.arrayPossible)
}

func (c *compiler) anyLive(list []variant) bool {
	return slices.ContainsFunc(list, func(v variant) bool { return c.nodes[v.node].live })
}

func (c *compiler) objectPossible(o *objectSpec) bool {
	named := 0
	var ways []uint32
	for i, list := range o.values {
		if c.anyLive(list) {
			named++
		} else if o.required[i>>6]>>(i&63)&1 != 0 {
			return false
		}
	}
	for _, list := range append(slices.Clone(o.values), o.classValues()...) {
		for _, v := range list {
			if c.nodes[v.node].live {
				ways = append(ways, v.duty)
			}
		}
	}
	most := o.duties
	if o.max >= 0 {
		most = min(most, o.max)
	}
	if !covers(ways, 1<<o.duties-1, most) || o.max >= 0 && o.needed > o.max {
		return false
	}
	open := slices.ContainsFunc(o.others, func(k keyClass) bool { return c.anyLive(k.values) })
	return open || named >= o.min
}

func (o *objectSpec) classValues() [][]variant {
	var out [][]variant
	for _, k := range o.others {
		out = append(out, k.values)
	}
	return out
}

func (c *compiler) arrayPossible(a *arraySpec) bool {
	for d, need := range a.need {
		if need > 0 && !c.dutyPossible(a, d) {
			return false
		}
		if a.max >= 0 && need > a.max {
			return false
		}
	}
	if a.distinct != nil {
		n := 0
		for _, v := range a.other {
			if c.nodes[v.node].live {
				n++
			}
		}
		return n >= a.min
	}
	for i := range a.min {
		if i >= len(a.first) {
			return c.anyLive(a.other)
		}
		if !c.anyLive(a.first[i]) {
			return false
		}
	}
	return true
}

func (c *compiler) dutyPossible(a *arraySpec, d int) bool {
	for _, list := range append(slices.Clone(a.first), a.other) {
		for _, v := range list {
			if v.duty>>d&1 != 0 && c.nodes[v.node].live {
				return true
			}
		}
	}
	return false
}
