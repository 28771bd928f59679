package graph

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/greta-project/greta/graph/lang"
)

// Attributes are structs with tagged fields:
//
//	Eps    float64 `attr:"eps,required"`
//	Layout string  `attr:"layout" words:"half|pair"`
//
// of kinds float64, int, bool, string (one of the words), []int and []float64.

// Attr gives a node's attributes as their type.
func Attr[T any](n *Node) *T { return n.Attr.(*T) }

// attrField finds a field by its attribute name in a pointer to a struct.
func attrField(ptr reflect.Value, name string) (reflect.Value, bool) {
	if !ptr.IsValid() || ptr.IsNil() {
		return reflect.Value{}, false
	}
	s := ptr.Elem()
	for i := range s.NumField() {
		if tag, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("attr"), ","); tag == name {
			return s.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// AttrSpec describes one attribute of an operator, for tables and schemas.
type AttrSpec struct {
	Name     string
	Kind     string // number, integer, bool, word, sizes, numbers
	Words    []string
	Required bool
	Default  any
}

var attrSpecs sync.Map // *Op -> []AttrSpec

// Attrs lists an operator's attributes in order. The list is shared: it must
// not be changed.
func (op *Op) Attrs() []AttrSpec {
	if op.Attr == nil {
		return nil
	}
	if all, ok := attrSpecs.Load(op); ok {
		return all.([]AttrSpec)
	}
	var all []AttrSpec
	s := reflect.ValueOf(op.Attr()).Elem()
	for i := range s.NumField() {
		f := s.Type().Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("attr"), ",")
		a := AttrSpec{Name: name, Required: opts == "required", Default: s.Field(i).Interface()}
		switch f.Type.Kind() {
		case reflect.Float64:
			a.Kind = "number"
		case reflect.Int:
			a.Kind = "integer"
		case reflect.Bool:
			a.Kind = "bool"
		case reflect.String:
			a.Kind, a.Words = "word", strings.Split(f.Tag.Get("words"), "|")
		case reflect.Slice:
			a.Kind = "sizes"
			if f.Type.Elem().Kind() == reflect.Float64 {
				a.Kind = "numbers"
			}
		}
		all = append(all, a)
	}
	attrSpecs.Store(op, all)
	return all
}

// SetAttr stores a value of the language in the attribute struct that attr
// points to, and says what is wrong with it: unknown name, wrong type.
func (op *Op) SetAttr(attr any, name string, v lang.Val) error {
	f, ok := attrField(reflect.ValueOf(attr), name)
	if attr == nil || !ok {
		var names []string
		for _, a := range op.Attrs() {
			names = append(names, a.Name)
		}
		if len(names) == 0 {
			return fmt.Errorf("unknown attribute %s: %s has none", name, op.Name)
		}
		if near := lang.Nearest(name, names); near != "" {
			return fmt.Errorf("unknown attribute %s of %s; did you mean %s?", name, op.Name, near)
		}
		return fmt.Errorf("unknown attribute %s; %s has %s", name, op.Name, strings.Join(names, ", "))
	}
	switch f.Kind() {
	case reflect.Float64:
		x, ok := v.(float64)
		if !ok {
			return fmt.Errorf("%s= must be a number, not %s", name, lang.Format(v))
		}
		f.SetFloat(x)
	case reflect.Int:
		x, ok := lang.Int(v)
		if !ok {
			return fmt.Errorf("%s= must be an integer, not %s", name, lang.Format(v))
		}
		f.SetInt(int64(x))
	case reflect.Bool:
		x, ok := v.(bool)
		if !ok {
			return fmt.Errorf("%s= must be true or false, not %s", name, lang.Format(v))
		}
		f.SetBool(x)
	case reflect.String:
		x, ok := v.(string)
		words := op.words(name)
		for _, w := range words {
			if ok && x == w {
				f.SetString(x)
				return nil
			}
		}
		return fmt.Errorf("%s= must be one of %s, not %s", name, strings.Join(words, ", "), lang.Format(v))
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Float64 {
			return setNumbers(f, name, v)
		}
		list, ok := v.([]lang.Val)
		var sizes []int
		for _, e := range list {
			k, isInt := lang.Int(e)
			if !isInt {
				ok = false
				break
			}
			sizes = append(sizes, k)
		}
		if !ok {
			return fmt.Errorf("%s= must be a list of integers, not %s", name, lang.Format(v))
		}
		f.Set(reflect.ValueOf(sizes))
	default:
		return fmt.Errorf("attribute %s has a kind that the language lacks", name)
	}
	return nil
}

// setNumbers stores a list of numbers.
func setNumbers(f reflect.Value, name string, v lang.Val) error {
	list, ok := v.([]lang.Val)
	numbers := make([]float64, len(list))
	for i, e := range list {
		x, is := e.(float64)
		numbers[i], ok = x, ok && is
	}
	if !ok {
		return fmt.Errorf("%s= must be a list of numbers, not %s", name, lang.Format(v))
	}
	f.Set(reflect.ValueOf(numbers))
	return nil
}

func (op *Op) words(name string) []string {
	for _, a := range op.Attrs() {
		if a.Name == name {
			return a.Words
		}
	}
	return nil
}

// AttrVal gives an attribute as a value of the language.
func AttrVal(attr any, name string) (lang.Val, bool) {
	f, ok := attrField(reflect.ValueOf(attr), name)
	if attr == nil || !ok {
		return nil, false
	}
	switch f.Kind() {
	case reflect.Float64:
		return f.Float(), true
	case reflect.Int:
		return float64(f.Int()), true
	case reflect.Bool:
		return f.Bool(), true
	case reflect.String:
		return f.String(), true
	}
	list := make([]lang.Val, f.Len())
	for i := range list {
		if e := f.Index(i); e.Kind() == reflect.Float64 {
			list[i] = e.Float()
		} else {
			list[i] = float64(e.Int())
		}
	}
	return list, true
}

// AttrText prints the attributes that differ from their defaults: "eps=1e-5, layout=pair".
func (n *Node) AttrText() string {
	var parts []string
	if n.Op.Attr == nil {
		return ""
	}
	defaults := n.Op.Attr()
	for _, a := range n.Op.Attrs() {
		v, _ := AttrVal(n.Attr, a.Name)
		d, _ := AttrVal(defaults, a.Name)
		if a.Required || lang.Format(v) != lang.Format(d) {
			parts = append(parts, a.Name+"="+lang.Format(v))
		}
	}
	return strings.Join(parts, ", ")
}
