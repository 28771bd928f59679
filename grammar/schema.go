// JSON schema: what each keyword, and its negation, says.

package grammar

import (
	"fmt"
	"slices"
	"strconv"
)

// Refused says that a schema cannot be honoured, and why.
type Refused struct {
	Keyword string // as the schema has it
	At      string // JSON pointer of the schema that holds it
	Why     string
	err     error
}

// Unwrap gives what kind of reason it is: see TooComplex.
func (e *Refused) Unwrap() error { return e.err }

func (e *Refused) Error() string {
	if e.Keyword == "" {
		return fmt.Sprintf("schema: what is at %s cannot be honoured: %s", e.At, e.Why)
	}
	return fmt.Sprintf("schema: keyword %s at %s cannot be honoured: %s", e.Keyword, e.At, e.Why)
}

func refuse(v *value, keyword, format string, args ...any) error {
	return &Refused{Keyword: keyword, At: v.path(), Why: fmt.Sprintf(format, args...)}
}

// lit names a statement about a value: a schema or a keyword of one, or the
// contrary. litTrue and litFalse are always there.
type lit int32

const (
	litTrue  lit = 0
	litFalse lit = 1
)

type litKey struct {
	v       *value
	keyword string // "": the whole schema
	not     bool
}

// meaning is what a statement says of a value: all of apply and all, and of each
// list in any one entry, of which everything holds.
type meaning struct {
	apply []func(*shape)
	all   []lit
	any   [][][]lit
}

type compiler struct {
	a     *arena
	opt   Options
	root  *value
	draft int // 4, 6, 7, 2019, 2020
	ids   map[string]*value

	resources map[*value]*resource
	byURI     map[string]*resource
	dynamic   map[string]int // how many have a $dynamicAnchor

	lits      []litKey
	litIDs    map[litKey]lit
	meanings  []*meaning
	regexes   map[string]rx
	constants map[*value]*value
	disjoint  map[[2]lit]bool
	nones     map[string]bool // statements and a depth → nothing meets them

	tags *paramTags // how the root's members are written; nil: as JSON has them

	number, integer, decimal rx
	ws                       rx
	words                    [3]string // null, true and false
	quoted                   func(inner, after rx) rx
	comma, colon             string

	nodes   []*vnode
	nodeIDs map[string]int32
	at      *value // what is being read, for errors
	budget  int    // alternatives that may yet be tried
}

// keywords in the order in which they are applied; cheap and decisive first.
var keywords = []string{"$ref", "type", "const", "enum", "required", "properties", "propertyNames", "minProperties",
	"maxProperties", "items", "contains", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern",
	"format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "not",
	"dependentRequired", "dependentSchemas", "dependencies", "if", "anyOf", "oneOf",
	"$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"}

// since names the draft that introduced a keyword, where it is not the fourth;
// schemas of earlier drafts may use the name for something else.
var since = map[string]int{"const": 6, "contains": 6, "propertyNames": 6, "if": 7, "dependentRequired": 2019,
	"dependentSchemas": 2019, "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "$dynamicRef": 2020,
	"$recursiveRef": 2019}

// spokenFor are keywords that are read with the one named.
var spokenFor = map[string]string{"patternProperties": "properties", "additionalProperties": "properties",
	"prefixItems": "items", "additionalItems": "items"}

func (c *compiler) litOf(v *value, keyword string, not bool) lit {
	if is, ok := v.bool(); ok && keyword == "" {
		if is != not {
			return litTrue
		}
		return litFalse
	}
	k := litKey{v, keyword, not}
	id, ok := c.litIDs[k]
	if !ok {
		id = lit(len(c.lits))
		c.lits = append(c.lits, k)
		c.meanings = append(c.meanings, nil)
		c.litIDs[k] = id
	}
	return id
}

func (c *compiler) is(v *value) lit    { return c.litOf(v, "", false) }
func (c *compiler) isNot(v *value) lit { return c.litOf(v, "", true) }

func (c *compiler) contrary(l lit) lit {
	if l <= litFalse {
		return litFalse - l
	}
	k := c.lits[l]
	return c.litOf(k.v, k.keyword, !k.not)
}

// say gives a statement's meaning.
func (c *compiler) say(l lit) (*meaning, error) {
	if m := c.meanings[l]; m != nil {
		return m, nil
	}
	c.a.spend(4)
	k := c.lits[l]
	c.at = k.v
	m := &meaning{}
	var err error
	if k.keyword == "" {
		err = c.sayAll(m, k.v, k.not)
	} else {
		err = c.sayKeyword(m, k)
	}
	if err != nil {
		return nil, err
	}
	c.meanings[l] = m
	return m, nil
}

// present lists the keywords of a schema that constrain values.
func (c *compiler) present(v *value) []string {
	if v.get("$ref") != nil && c.draft < 2019 {
		return []string{"$ref"}
	}
	var out []string
	for _, k := range keywords {
		if c.draft < since[k] {
			continue
		}
		has := v.get(k) != nil
		for part, of := range spokenFor {
			has = has || of == k && v.get(part) != nil
		}
		if has {
			out = append(out, k)
		}
	}
	return out
}

func (c *compiler) sayAll(m *meaning, v *value, not bool) error {
	if v.kind != 'o' {
		return refuse(v, v.name, "a schema is an object, true or false")
	}
	var alternatives [][]lit
	for _, k := range c.present(v) {
		l := c.litOf(v, k, not)
		if not {
			alternatives = append(alternatives, []lit{l})
		} else {
			m.all = append(m.all, l)
		}
	}
	if not {
		m.any = append(m.any, alternatives)
	}
	return nil
}

func (m *meaning) do(f func(*shape)) { m.apply = append(m.apply, f) }

// only restricts to types.
func (m *meaning) only(types uint8) {
	m.do(func(s *shape) { s.types &= types })
}

func (c *compiler) sayKeyword(m *meaning, k litKey) error {
	v := k.v.get(k.keyword)
	switch k.keyword {
	case "$ref":
		target, err := c.resolve(k.v, v)
		if err != nil {
			return err
		}
		m.all = append(m.all, c.litOf(target, "", k.not))
		return nil
	case "type":
		return c.sayType(m, k, v)
	case "const":
		return c.sayEnum(m, k, []*value{v})
	case "enum":
		if v.kind != 'a' {
			return refuse(k.v, k.keyword, "it must be an array")
		}
		return c.sayEnum(m, k, v.items)
	case "required", "properties", "propertyNames", "minProperties", "maxProperties":
		return c.sayObject(m, k, v)
	case "items", "contains", "minItems", "maxItems", "uniqueItems":
		return c.sayArray(m, k, v)
	case "minLength", "maxLength", "pattern", "format":
		return c.sayString(m, k, v)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return c.sayNumber(m, k, v)
	case "dependentRequired", "dependentSchemas", "dependencies":
		return c.sayDependent(m, k, v)
	case "$dynamicRef", "$recursiveRef":
		target, err := c.resolveDynamic(k.v, k.keyword, v)
		if err != nil {
			return err
		}
		m.all = append(m.all, c.litOf(target, "", k.not))
		return nil
	case "unevaluatedProperties", "unevaluatedItems":
		if is, ok := v.bool(); ok && is && !k.not {
			return nil
		}
		if k.not {
			return refuse(k.v, k.keyword, "its contrary is not supported")
		}
		return c.sayUnevaluated(m, k, v)
	}
	return c.sayLogic(m, k, v)
}

func (c *compiler) sayType(m *meaning, k litKey, v *value) error {
	names := v.items
	if v.kind == 's' {
		names = []*value{v}
	}
	var types uint8
	integer := false
	for _, n := range names {
		bits, ok := map[string]uint8{"null": typeNull, "boolean": typeTrue | typeFalse, "number": typeNumber,
			"integer": 0, "string": typeString, "array": typeArray, "object": typeObject}[n.text]
		if !ok || n.kind != 's' {
			return refuse(k.v, k.keyword, "%q is no type of JSON schema", n.text)
		}
		types |= bits
		integer = integer || n.text == "integer"
	}
	if len(names) == 0 {
		return refuse(k.v, k.keyword, "it must be a name or a list of names")
	}
	integer = integer && types&typeNumber == 0
	switch {
	case integer && !k.not:
		m.only(types | typeNumber)
		m.do(func(s *shape) { s.num = append(s.num, c.integer) })
	case integer:
		m.only(typeAny &^ types)
		broken := c.a.and(c.decimal, c.a.not(c.integer))
		m.do(func(s *shape) { s.num = append(s.num, broken) })
	case k.not:
		m.only(typeAny &^ types)
	default:
		m.only(types)
	}
	return nil
}

// sayEnum says that a value is one of a list.
func (c *compiler) sayEnum(m *meaning, k litKey, list []*value) error {
	var types uint8
	var texts []string
	var numbers []rx
	var others []lit
	ops := int32(cmpEqual)
	if k.not {
		ops = cmpLess | cmpGreater
	}
	for _, v := range list {
		switch v.kind {
		case 's':
			texts = append(texts, v.text)
			types |= typeString
		case 'n':
			d, ok := parseDecimal(v.text)
			if !ok {
				return refuse(k.v, k.keyword, "the number %.40s has too many digits", v.text)
			}
			r := c.a.compare(d, ops)
			if c.opt.Compact && !k.not {
				r = c.a.lit(v.text)
			}
			numbers = append(numbers, r)
			types |= typeNumber
		case 'o', 'a':
			others = append(others, c.litOf(c.constant(v), "", k.not))
		default:
			types |= map[byte]uint8{'t': typeTrue, 'f': typeFalse, 'z': typeNull}[v.kind]
		}
	}
	text := rxNone
	if len(texts) > 0 {
		_, id := c.a.trie(texts)
		text = c.a.oneOf(id, nil)
	}
	if k.not {
		text = c.a.notText(text)
		m.only(typeAny &^ (types & (typeNull | typeTrue | typeFalse)))
		m.do(func(s *shape) {
			if len(texts) > 0 {
				s.str = append(s.str, text)
			}
			s.num = append(s.num, numbers...)
		})
		m.all = append(m.all, others...)
		return nil
	}
	number := c.a.alt(numbers...)
	scalar := func(s *shape) {
		s.types &= types
		s.str = append(s.str, text)
		s.num = append(s.num, number)
	}
	if len(others) == 0 {
		m.do(scalar)
		return nil
	}
	var alternatives [][]lit
	if types != 0 {
		plain := c.special(k.v, "scalars of "+k.keyword, &meaning{apply: []func(*shape){scalar}})
		alternatives = append(alternatives, []lit{plain})
	}
	for _, o := range others {
		alternatives = append(alternatives, []lit{o})
	}
	m.any = append(m.any, alternatives)
	return nil
}

// special makes a statement of a meaning that no keyword has; it has no contrary.
func (c *compiler) special(v *value, name string, m *meaning) lit {
	l := c.litOf(v, name, false)
	c.meanings[l] = m
	return l
}

// constant makes the schema of one array or object.
func (c *compiler) constant(v *value) *value {
	if s := c.constants[v]; s != nil {
		return s
	}
	c.a.spend(4)
	s := &value{kind: 'o', parent: v.parent, name: v.name}
	c.constants[v] = s
	put := func(key string, m *value) {
		m.parent, m.name = s, key
		s.put(key, m)
	}
	wrap := func(v *value) *value { // const is younger than the fourth draft
		w, list := &value{kind: 'o'}, &value{kind: 'a'}
		only := *v
		list.push(&only)
		w.put("enum", list)
		return w
	}
	never := &value{kind: 'f'}
	switch v.kind {
	case 'o':
		put("type", &value{kind: 's', text: "object"})
		props, required := &value{kind: 'o'}, &value{kind: 'a'}
		for _, key := range v.keys {
			props.put(key, wrap(v.members[key]))
			required.push(&value{kind: 's', text: key})
		}
		put("properties", props)
		put("required", required)
		put("additionalProperties", never)
	case 'a':
		put("type", &value{kind: 's', text: "array"})
		list := &value{kind: 'a'}
		for _, item := range v.items {
			list.push(wrap(item))
		}
		put("prefixItems", list)
		put("items", never)
		put("minItems", &value{kind: 'n', text: strconv.Itoa(len(v.items))})
		put("maxItems", &value{kind: 'n', text: strconv.Itoa(len(v.items))})
	}
	return s
}

// count reads a keyword that is a whole number from 0.
func (c *compiler) count(k litKey, v *value) (int, error) {
	if v.kind != 'n' {
		return 0, refuse(k.v, k.keyword, "it must be a number")
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || f < 0 || f != float64(int64(f)) {
		return 0, refuse(k.v, k.keyword, "%s is no whole number from 0", v.text)
	}
	return int(min(f, 1<<30)), nil
}

func (c *compiler) sayString(m *meaning, k litKey, v *value) error {
	var r rx
	switch k.keyword {
	case "minLength", "maxLength":
		return c.sayCount(m, k, v, typeString, func(s *shape) (least, most *int) { return &s.minL, &s.maxL })
	case "pattern":
		if v.kind != 's' {
			return refuse(k.v, k.keyword, "it must be a string")
		}
		var err error
		if r, err = c.patternText(v.text); err != nil {
			return refuse(k.v, k.keyword, "%v", err)
		}
	case "format":
		if v.kind != 's' {
			return refuse(k.v, k.keyword, "it must be a string")
		}
		known, ok := c.regexes["format "+v.text]
		if !ok {
			var is bool
			var err error
			if known, is, err = c.a.formatText(v.text); err != nil {
				return refuse(k.v, k.keyword, "%v", err)
			}
			if !is {
				known = c.a.text
			}
			if slices.Contains(refusedFormats, v.text) {
				return refuse(k.v, k.keyword, "%q is not supported", v.text)
			}
			c.regexes["format "+v.text] = known
		}
		r = known
	}
	if k.not {
		m.only(typeString)
		r = c.a.notText(r)
	}
	m.do(func(s *shape) { s.str = append(s.str, r) })
	return nil
}

// patternText gives the texts that a pattern is found in.
func (c *compiler) patternText(src string) (rx, error) {
	if r, ok := c.regexes[src]; ok {
		return r, nil
	}
	r, err := c.a.searchPattern(src)
	if err == nil {
		c.regexes[src] = r
	}
	return r, err
}

func (c *compiler) sayNumber(m *meaning, k litKey, v *value) error {
	if _, ok := v.bool(); ok && (k.keyword == "exclusiveMinimum" || k.keyword == "exclusiveMaximum") {
		// Draft 4: it changes minimum or maximum, which read it. It says nothing
		// by itself, so its contrary holds of no value.
		if k.not {
			m.any = append(m.any, nil)
		}
		return nil
	}
	if v.kind != 'n' {
		return refuse(k.v, k.keyword, "it must be a number")
	}
	d, ok := parseDecimal(v.text)
	if !ok {
		return refuse(k.v, k.keyword, "%.40s has too many digits", v.text)
	}
	exclusive := func(key string) bool { is, _ := k.v.get(key).bool(); return is }
	var r rx
	switch k.keyword {
	case "multipleOf":
		if r, ok = c.a.multipleOf(d); !ok || d.negative {
			return refuse(k.v, k.keyword, "%.40s is not above 0 or has more than 9 digits", v.text)
		}
		if k.not {
			r = c.a.and(c.decimal, c.a.not(r))
		}
	default:
		ops := int32(map[string]int32{"minimum": cmpEqual | cmpGreater, "maximum": cmpEqual | cmpLess,
			"exclusiveMinimum": cmpGreater, "exclusiveMaximum": cmpLess}[k.keyword])
		if k.keyword == "minimum" && exclusive("exclusiveMinimum") ||
			k.keyword == "maximum" && exclusive("exclusiveMaximum") {
			ops &^= cmpEqual
		}
		if k.not {
			ops ^= cmpLess | cmpEqual | cmpGreater
		}
		r = c.a.compare(d, ops)
	}
	if k.not {
		m.only(typeNumber)
	}
	m.do(func(s *shape) { s.num = append(s.num, r) })
	return nil
}

// schemas reads a keyword that is a list of schemas.
func (c *compiler) schemas(k litKey, v *value) ([]*value, error) {
	if v.kind != 'a' || len(v.items) == 0 {
		return nil, refuse(k.v, k.keyword, "it must be a list of schemas, not empty")
	}
	return v.items, nil
}

func (c *compiler) sayLogic(m *meaning, k litKey, v *value) error {
	switch k.keyword {
	case "not":
		m.all = append(m.all, c.litOf(v, "", !k.not))
		return nil
	case "if":
		return c.sayIf(m, k, v)
	}
	list, err := c.schemas(k, v)
	if err != nil {
		return err
	}
	each := make([]lit, len(list))
	var alternatives [][]lit
	for i, s := range list {
		each[i] = c.litOf(s, "", k.not)
		alternatives = append(alternatives, []lit{each[i]})
	}
	switch {
	case k.keyword == "oneOf":
		return c.sayOneOf(m, k, list)
	case (k.keyword == "allOf") != k.not:
		m.all = append(m.all, each...)
	default:
		m.any = append(m.any, alternatives)
	}
	return nil
}

func (c *compiler) sayIf(m *meaning, k litKey, v *value) error {
	then, other := litTrue, litTrue
	if t := k.v.get("then"); t != nil {
		then = c.is(t)
	}
	if e := k.v.get("else"); e != nil {
		other = c.is(e)
	}
	if k.not {
		then, other = c.contrary(then), c.contrary(other)
	}
	if then == litTrue && other == litTrue {
		return nil
	}
	m.any = append(m.any, [][]lit{{c.is(v), then}, {c.isNot(v), other}})
	return nil
}

// sayOneOf says that just one schema of a list holds. Of those that no value
// meets together nothing more needs to be said.
func (c *compiler) sayOneOf(m *meaning, k litKey, list []*value) error {
	var alternatives [][]lit
	if k.not {
		var none []lit
		for i, s := range list {
			none = append(none, c.isNot(s))
			for _, o := range list[i+1:] {
				alternatives = append(alternatives, []lit{c.is(s), c.is(o)})
			}
		}
		m.any = append(m.any, append(alternatives, none))
		return nil
	}
	for i, s := range list {
		one := []lit{c.is(s)}
		for j, o := range list {
			if i == j {
				continue
			}
			apart, err := c.apart(c.is(s), c.is(o))
			if err != nil {
				return err
			}
			if !apart {
				one = append(one, c.isNot(o))
			}
		}
		alternatives = append(alternatives, one)
	}
	m.any = append(m.any, slices.Clip(alternatives))
	return nil
}
