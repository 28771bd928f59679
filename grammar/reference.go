// References: which schema a $ref names, by the identifiers and anchors of the document.

package grammar

import (
	"net/url"
	"slices"
	"strings"
)

// resource is a schema with an identifier of its own, or the document; references in it are relative to it.
type resource struct {
	root    *value
	uri     *url.URL
	anchors map[string]*value
}

// identify finds the resources and anchors of a document.
func (c *compiler) identify(root *value) {
	c.resources, c.byURI = map[*value]*resource{}, map[string]*resource{}
	c.dynamic = map[string]int{}
	c.walk(root, nil, false)
}

// named are the keywords whose members are schemas by names; values has those that hold no schemas.
var (
	named = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	plain = []string{"enum", "const", "default", "examples"}
)

// walk goes over a schema, or over schemas by names, within a resource.
func (c *compiler) walk(v *value, in *resource, byName bool) {
	for _, item := range v.items {
		c.walk(item, in, false)
	}
	if v.kind != 'o' {
		return
	}
	if !byName {
		in = c.enter(v, in)
	}
	for _, key := range v.keys {
		if byName || !slices.Contains(plain, key) {
			c.walk(v.members[key], in, !byName && slices.Contains(named, key))
		}
	}
}

// enter notes what a schema is called, and gives the resource that it lies in.
func (c *compiler) enter(v *value, in *resource) *resource {
	text := func(key string) string {
		if s := v.get(key); s != nil && s.kind == 's' && (c.draft >= 2019 || v.get("$ref") == nil) {
			return s.text
		}
		return ""
	}
	id := text("$id")
	if c.draft == 4 {
		id = text("id")
	}
	id, fragment, _ := strings.Cut(id, "#")
	if in == nil || id != "" {
		from := &url.URL{}
		if in != nil {
			from = in.uri
		}
		if u, err := from.Parse(id); err == nil {
			from = u
		}
		in = &resource{v, from, map[string]*value{}}
		c.resources[v] = in
		if known := c.byURI[from.String()]; known == nil {
			c.byURI[from.String()] = in
		}
	}
	anchors := []string{text("$anchor"), text("$dynamicAnchor")}
	if c.draft < 2019 && fragment != "" && fragment[0] != '/' {
		anchors = []string{fragment}
	}
	for _, name := range anchors {
		if name != "" && in.anchors[name] == nil {
			in.anchors[name] = v
		}
	}
	if name := text("$dynamicAnchor"); name != "" {
		c.dynamic[name]++
	}
	return in
}

// resourceOf gives the resource that a value lies in.
func (c *compiler) resourceOf(v *value) *resource {
	for ; v != nil; v = v.parent {
		if in := c.resources[v]; in != nil {
			return in
		}
	}
	return c.resources[c.root]
}

// resolve finds what a reference names.
func (c *compiler) resolve(at, ref *value) (*value, error) {
	const keyword = "$ref"
	if ref.kind != 's' {
		return nil, refuse(at, keyword, "it must be a string")
	}
	base, fragment, _ := strings.Cut(ref.text, "#")
	in := c.resourceOf(at)
	target := in.root
	if base != "" {
		if target = c.named(in, base); target == nil {
			return nil, refuse(at, keyword, "%q is not in this document, and nothing is fetched", ref.text)
		}
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	if fragment == "" {
		return target, nil
	}
	if !strings.HasPrefix(fragment, "/") {
		if v := c.resourceOf(target).anchors[fragment]; v != nil {
			return v, nil
		}
		if v := c.ids["#"+fragment]; v != nil { // of another resource: where it is the only one, it is what is meant
			return v, nil
		}
		return nil, refuse(at, keyword, "there is no anchor %q", fragment)
	}
	found, last, part := follow(target, fragment)
	if found == nil && base == "" && target != c.root { // many write what an identifier of their own does not allow
		found, _, _ = follow(c.root, fragment)
	}
	if found == nil {
		return nil, refuse(at, keyword, "%q leads nowhere: there is no %q at %s", ref.text, part, last.path())
	}
	return found, nil
}

// named finds the schema that an address names from within a resource, nil where there is none.
func (c *compiler) named(in *resource, address string) *value {
	if u, err := in.uri.Parse(address); err == nil {
		if r := c.byURI[u.String()]; r != nil {
			return r.root
		}
	}
	return c.findID(address)
}

// follow goes along a JSON pointer; where it leads nowhere, it gives how far it leads and what is not there.
func follow(target *value, pointer string) (found, last *value, part string) {
	for _, part := range strings.Split(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := target.get(part)
		if target.kind == 'a' {
			for _, item := range target.items {
				if item.name == part {
					next = item
				}
			}
		}
		if next == nil {
			return nil, target, part
		}
		target = next
	}
	return target, target, ""
}

// resolveDynamic finds what $dynamicRef or $recursiveRef names, where that is the same from wherever it is reached:
// with one such anchor, or one resource, in the document.
func (c *compiler) resolveDynamic(at *value, keyword string, ref *value) (*value, error) {
	target, err := c.resolve(at, ref)
	if err != nil {
		return nil, err
	}
	_, anchor, _ := strings.Cut(ref.text, "#")
	name := target.get("$dynamicAnchor")
	if keyword == "$recursiveRef" && len(c.resources) > 1 ||
		name != nil && name.text == anchor && c.dynamic[anchor] > 1 {
		return nil, refuse(at, keyword, "what it names depends on how it is reached")
	}
	return target, nil
}
