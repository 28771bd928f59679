// A shape is one alternative of a schema: constraints that all hold, sorted by
// the type of value that they speak of.

package grammar

import "slices"

// Types of values, as bits.
const (
	typeNull = 1 << iota
	typeTrue
	typeFalse
	typeNumber
	typeString
	typeArray
	typeObject
	typeAny = 1<<iota - 1
)

type shape struct {
	types      uint8
	minL, maxL int  // characters; max < 0: no limit
	str, num   []rx // what a string's text and a number's spelling also match

	closed     []*value // schemas with properties, patternProperties, additionalProperties
	names      []rx     // what every key matches
	required   []string
	some       []someMember
	one        []oneMember
	minP, maxP int

	items      []*value // schemas with items, prefixItems, additionalItems
	contains   []containing
	someItem   []containing // of which one at from or after must match
	minI, maxI int
	unique     *value // the uniqueItems keyword
}

// someMember asks for a member whose key matches keys and whose value is what lit says.
type someMember struct {
	keys rx
	is   lit
}

// oneMember asks for the member of a key to be what lit says, where it is there.
type oneMember struct {
	key string
	is  lit
}

// containing asks for min to max items from index from on that are what is says.
type containing struct {
	is, other      lit
	min, max, from int
}

func anyShape() *shape {
	return &shape{types: typeAny, maxL: -1, maxP: -1, maxI: -1}
}

// clone makes a copy whose slices grow apart.
func (s *shape) clone() *shape {
	c := *s
	c.str, c.num, c.names = slices.Clip(c.str), slices.Clip(c.num), slices.Clip(c.names)
	c.closed, c.items, c.required = slices.Clip(c.closed), slices.Clip(c.items), slices.Clip(c.required)
	c.one = slices.Clip(c.one)
	c.some, c.contains, c.someItem = slices.Clip(c.some), slices.Clip(c.contains), slices.Clip(c.someItem)
	return &c
}

func atMost(have, n int) int {
	if have < 0 {
		return n
	}
	return min(have, n)
}

// text gives what the shape's strings match; without any constraint, all text.
func (c *compiler) shapeText(s *shape) rx {
	list := slices.Clone(s.str)
	if s.maxL >= 0 && s.minL > s.maxL {
		return rxNone
	}
	if s.minL > 0 || s.maxL >= 0 {
		list = append(list, c.a.rep(c.a.anyChar, s.minL, s.maxL))
	}
	r := c.writable(c.a.and(append(list, c.a.text)...))
	if !c.a.alive(r) {
		return rxNone
	}
	return r
}

// scalars gives the spelling of the shape's values that are neither array nor object.
func (c *compiler) scalars(s *shape) rx {
	var list []rx
	for i, bit := range []uint8{typeNull, typeTrue, typeFalse} {
		if s.types&bit != 0 {
			list = append(list, c.a.lit(c.words[i]))
		}
	}
	if s.types&typeNumber != 0 {
		if r := c.a.and(append([]rx{c.number}, s.num...)...); c.a.alive(r) {
			list = append(list, r)
		}
	}
	if s.types&typeString != 0 {
		list = append(list, c.quoted(c.shapeText(s), rxEps))
	}
	return c.a.alt(list...)
}
