package main

// The registry: a small XML tree, because vk.xml mixes text and elements, and
// what the generator looks up in it.

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"
)

type node struct {
	name string // "" for text
	attr map[string]string
	kids []*node
	data string
}

func parse(r io.Reader) (*node, error) {
	d := xml.NewDecoder(r)
	stack := []*node{{}}
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			if registry := stack[0].first("registry"); registry != nil {
				return registry, nil
			}
			return nil, errors.New("no registry element")
		}
		if err != nil {
			return nil, err
		}
		top := stack[len(stack)-1]
		switch t := t.(type) {
		case xml.StartElement:
			n := &node{name: t.Name.Local, attr: map[string]string{}}
			for _, a := range t.Attr {
				n.attr[a.Name.Local] = a.Value
			}
			top.kids = append(top.kids, n)
			stack = append(stack, n)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.kids = append(top.kids, &node{data: string(t)})
		}
	}
}

func (n *node) all(name string) (out []*node) {
	for _, k := range n.kids {
		if k.name == name {
			out = append(out, k)
		}
	}
	return out
}

func (n *node) first(name string) *node {
	if i := slices.IndexFunc(n.kids, func(k *node) bool { return k.name == name }); i >= 0 {
		return n.kids[i]
	}
	return nil
}

// text joins all text below n, comments left out.
func (n *node) text() string {
	if n.name == "" {
		return n.data
	}
	var b strings.Builder
	for _, k := range n.kids {
		if k.name != "comment" {
			b.WriteString(k.text())
		}
	}
	return b.String()
}

// ours leaves out what the registry says of Vulkan SC.
func ours(n *node) bool {
	api, ok := n.attr["api"]
	return !ok || slices.Contains(strings.Split(api, ","), "vulkan")
}

type generator struct {
	types    map[string]*node
	enums    map[string]*node   // <enums> by name
	added    map[string][]*node // enumerants that versions and extensions add, by enum
	consts   map[string]string  // API constants
	cmds     map[string]*node
	commands []string
	need     map[string]bool
	order    []string // types in the order in which they are reached
	structs  []string
	emitted  map[string]bool // enumerants
}

func newGenerator(root *node) *generator {
	g := &generator{types: map[string]*node{}, enums: map[string]*node{}, added: map[string][]*node{},
		consts: map[string]string{}, cmds: map[string]*node{}, need: map[string]bool{}, emitted: map[string]bool{}}
	for _, group := range root.all("types") {
		for _, t := range group.all("type") {
			if ours(t) {
				g.types[nameOf(t)] = t
			}
		}
	}
	for _, e := range root.all("enums") {
		g.enums[e.attr["name"]] = e
		if e.attr["name"] == "API Constants" {
			for _, c := range e.all("enum") {
				g.consts[c.attr["name"]] = c.attr["value"]
			}
		}
	}
	for _, f := range root.all("feature") {
		if ours(f) {
			g.extend(f, "")
		}
	}
	for _, group := range root.all("extensions") {
		for _, e := range group.all("extension") {
			if s := e.attr["supported"]; strings.Contains(s, "vulkan") && !strings.Contains(s, "disabled") {
				g.extend(e, e.attr["number"])
			}
		}
	}
	for _, group := range root.all("commands") {
		for _, c := range group.all("command") {
			if ours(c) {
				g.cmds[nameOf(c)] = c
			}
		}
	}
	return g
}

func nameOf(n *node) string {
	if name := n.attr["name"]; name != "" {
		return name
	}
	if p := n.first("proto"); p != nil {
		n = p
	}
	return n.first("name").text()
}

func (g *generator) extend(from *node, number string) {
	for _, r := range from.all("require") {
		for _, e := range r.all("enum") {
			if x := e.attr["extends"]; x != "" && ours(r) && ours(e) {
				if number != "" && e.attr["extnumber"] == "" {
					e.attr["extnumber"] = number
				}
				g.added[x] = append(g.added[x], e)
			}
		}
	}
}

func (g *generator) command(name string) *node {
	n := g.cmds[name]
	if n != nil && n.attr["alias"] != "" {
		n = g.cmds[n.attr["alias"]]
	}
	if n == nil {
		log.Fatalf("the registry has no command %s", name)
	}
	return n
}

// field is a C declaration of a member or parameter.
type field struct{ name, ctype, ptr, array string } // ptr: "", "*", "**"

func (g *generator) declaration(n *node) field {
	f := field{name: n.first("name").text(), ctype: n.first("type").text()}
	s := n.text()
	f.ptr = strings.Repeat("*", strings.Count(s, "*"))
	if i := strings.Index(s, "["); i >= 0 {
		f.array = strings.Trim(s[i:], "[]; \n")
		if v, ok := g.consts[f.array]; ok {
			f.array = v
		}
	}
	if strings.Contains(s[strings.Index(s, f.name):], ":") {
		log.Fatalf("a bit field: %s", s)
	}
	return f
}

var basic = map[string]string{
	"void": "", "char": "byte", "float": "float32", "double": "float64", "int8_t": "int8", "uint8_t": "uint8",
	"int16_t": "int16", "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64", "int32_t": "int32",
	"int64_t": "int64", "size_t": "uintptr", "int": "int32", "VkBool32": "uint32", "VkDeviceSize": "uint64",
	"VkDeviceAddress": "uint64", "VkFlags": "uint32", "VkFlags64": "uint64", "VkSampleMask": "uint32",
}

func goName(c string) string { return strings.TrimPrefix(c, "Vk") }

// want marks a type and all that it is made of.
func (g *generator) want(c string) {
	if _, ok := basic[c]; ok || g.need[c] {
		return
	}
	n := g.types[c]
	if n == nil {
		log.Fatalf("the registry has no type %q", c)
	}
	g.need[c] = true
	if a := n.attr["alias"]; a != "" {
		g.want(a)
	}
	if n.attr["category"] == "struct" {
		for _, m := range n.all("member") {
			if ours(m) {
				g.want(g.declaration(m).ctype)
			}
		}
		g.structs = append(g.structs, c)
	}
	g.order = append(g.order, c)
}

// goType is the Go type of a declaration. Pointers in structs stay typed, so
// that the collector sees them; void pointers are unsafe.Pointer.
func (g *generator) goType(f field) string {
	b, ok := basic[f.ctype]
	if !ok {
		b = goName(f.ctype)
		if c := g.types[f.ctype].attr["category"]; c == "funcpointer" || c == "" {
			b = "uintptr"
		}
	}
	p := f.ptr
	if f.ctype == "void" && p != "" {
		b, p = "unsafe.Pointer", p[1:]
	}
	if f.array != "" {
		return "[" + f.array + "]" + p + b
	}
	return p + b
}

func (g *generator) emitType(b *bytes.Buffer, c string) {
	n, name := g.types[c], goName(c)
	if a := n.attr["alias"]; a != "" {
		fmt.Fprintf(b, "type %s = %s\n\n", name, goName(a))
		return
	}
	switch n.attr["category"] {
	case "handle":
		if strings.Contains(n.text(), "NON_DISPATCHABLE") {
			fmt.Fprintf(b, "type %s uint64\n\n", name)
		} else {
			fmt.Fprintf(b, "type %s uintptr\n\n", name)
		}
	case "bitmask":
		fmt.Fprintf(b, "type %s %s\n\n", name, basic[n.first("type").text()])
		bits := n.attr["requires"] + n.attr["bitvalues"]
		if bits != "" && !g.need[bits] {
			g.emitEnum(b, bits, name)
		}
	case "enum":
		fmt.Fprintf(b, "type %s int32\n\n", name)
		g.emitEnum(b, c, name)
		if c == "VkResult" {
			g.emitResults(b)
		}
	case "union":
		g.emitUnion(b, n, name)
	case "struct":
		g.emitStruct(b, n, name)
	}
}

// emitUnion binds a union of numbers, the widest of 64 bits, as those bits.
func (g *generator) emitUnion(b *bytes.Buffer, n *node, name string) {
	wide := false
	for _, m := range n.all("member") {
		t := basic[g.declaration(m).ctype]
		if t == "" || g.declaration(m).ptr+g.declaration(m).array != "" {
			log.Fatalf("%s: only unions of numbers are bound", name)
		}
		wide = wide || strings.HasSuffix(t, "64")
	}
	if !wide {
		log.Fatalf("%s: only unions of 64 bits are bound", name)
	}
	fmt.Fprintf(b, "type %s uint64\n\n", name)
}

func (g *generator) emitStruct(b *bytes.Buffer, n *node, name string) {
	sType := ""
	fmt.Fprintf(b, "type %s struct {\n", name)
	for _, m := range n.all("member") {
		if ours(m) {
			f := g.declaration(m)
			fmt.Fprintf(b, "%s %s\n", export(f.name), g.goType(f))
			if f.name == "sType" {
				sType = m.attr["values"]
			}
		}
	}
	b.WriteString("}\n\n")
	if sType != "" {
		fmt.Fprintf(b, "// Init sets the structure's type.\nfunc (x *%s) Init() *%s { x.SType = %s; return x }\n\n", name,
			name, sType)
	}
}

func export(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (g *generator) enumerants(c string) []*node {
	e := g.enums[c]
	if e == nil {
		return nil
	}
	return append(e.all("enum"), g.added[c]...)
}

func (g *generator) emitEnum(b *bytes.Buffer, c, name string) {
	var lines strings.Builder
	for _, n := range g.enumerants(c) {
		v := value(n)
		if !ours(n) || v == "" || g.emitted[n.attr["name"]] {
			continue
		}
		if c == "VkStructureType" && !g.uses(n.attr["name"]) {
			continue
		}
		g.emitted[n.attr["name"]] = true
		fmt.Fprintf(&lines, "%s %s = %s\n", n.attr["name"], name, strings.TrimSuffix(strings.TrimSuffix(v, "ULL"), "U"))
	}
	if lines.Len() > 0 {
		fmt.Fprintf(b, "const (\n%s)\n\n", lines.String())
	}
}

// uses says whether a struct that is bound has this structure type.
func (g *generator) uses(sType string) bool {
	return slices.ContainsFunc(g.structs, func(s string) bool {
		return slices.ContainsFunc(g.types[s].all("member"), func(m *node) bool { return m.attr["values"] == sType })
	})
}

// emitResults names the result codes, for errors.
func (g *generator) emitResults(b *bytes.Buffer) {
	seen := map[string]bool{}
	b.WriteString("var resultNames = map[Result]string{\n")
	for _, n := range g.enumerants("VkResult") {
		if v := value(n); ours(n) && v != "" && !seen[v] {
			seen[v] = true
			fmt.Fprintf(b, "%s: %q,\n", v, n.attr["name"])
		}
	}
	b.WriteString("}\n\n")
}

// value is an enumerant's number; "" for an alias.
func value(n *node) string {
	if v := n.attr["value"]; v != "" {
		return v
	}
	if bit := n.attr["bitpos"]; bit != "" {
		return "1 << " + bit
	}
	if offset := n.attr["offset"]; offset != "" {
		number, err1 := strconv.Atoi(n.attr["extnumber"])
		at, err2 := strconv.Atoi(offset)
		if err := errors.Join(err1, err2); err != nil {
			log.Fatalf("enumerant %s: %v", n.attr["name"], err)
		}
		return n.attr["dir"] + strconv.Itoa(1000000000+(number-1)*1000+at)
	}
	return ""
}
