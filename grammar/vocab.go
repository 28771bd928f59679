// A vocabulary as a tree of bytes, cut into slices: tokens of one kind of text and
// a bounded length. Where an expression in progress lets any such text pass, the
// whole slice is allowed without a look at its tokens.

package grammar

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tokenizer"
)

// Vocabulary is a tokenizer's tokens, made once and shared by grammars. It does
// not change.
type Vocabulary struct {
	size    int
	words   [][]byte // by token: its bytes; nil for ends and what has none
	ends    []int32
	special map[string]int32
	sorted  []int32 // tokens by their bytes
	slices  []slice
	safe    []uint32 // every slice of what a JSON string holds as it is together
	encode  func(string) []int32
}

// slice is a part of the vocabulary.
type slice struct {
	kind  sliceKind
	chars int // the most characters of a token; 0: no slice, any tokens
	tree  tree
	bits  []uint32
}

type sliceKind uint8

const (
	sliceRest   sliceKind = iota // parts of characters, special tokens, what is longer than longToken
	sliceLower                   // a-z
	sliceWord                    // letters of ASCII, not only lower ones
	sliceSpace                   // a space and letters of ASCII
	sliceText                    // other text that a JSON string holds as it is, without marks
	sliceMarks                   // such text with marks
	sliceLines                   // text with quotes, backslashes or controls, without marks
	sliceOthers                  // and with marks
	sliceKinds
)

// marks are characters of which tags that end a text hold some, so that text without them can be told to pass.
const marks = "'<>[]{}|`"

// tree lists nodes in the order of a walk: a node's children follow it.
type tree struct {
	nodes []treeNode
	same  map[int32][]int32 // by node: more tokens of the same bytes
	depth int
}

type treeNode struct {
	byte  byte
	depth uint16
	token int32 // or -1
	skip  int32 // the node after all below this one
}

const (
	shortToken = 8
	longToken  = 32
)

// NewVocabulary reads a tokenizer's tokens. Control, unknown and unused tokens
// have no text: they match none, and only a trigger or a tag can name them.
func NewVocabulary(t *tokenizer.Tokenizer) *Vocabulary {
	words := make([][]byte, t.VocabSize())
	special := map[string]int32{}
	for id := range words {
		switch t.Kind(int32(id)) {
		case tokenizer.Control, tokenizer.Unknown, tokenizer.Unused:
			special[t.Token(int32(id))] = int32(id)
		default:
			words[id] = []byte(t.Bytes(int32(id)))
		}
	}
	v := newVocabulary(words, t.Ends(), special)
	v.encode = func(text string) []int32 {
		ids, err := t.Encode(text, tokenizer.Options{})
		if err != nil {
			return nil
		}
		return ids
	}
	return v
}

// newVocabulary takes the bytes of each token, the tokens that end a text, and
// the special tokens by name.
func newVocabulary(words [][]byte, ends []int32, special map[string]int32) *Vocabulary {
	v := &Vocabulary{size: len(words), words: slices.Clone(words), ends: slices.Clone(ends), special: map[string]int32{}}
	for name, id := range special {
		v.words[id] = []byte(specialBytes(id))
		v.special[name] = id
	}
	for _, id := range ends {
		v.words[id] = nil
	}
	for id, w := range v.words {
		if len(w) > 0 {
			v.sorted = append(v.sorted, int32(id))
		}
	}
	slices.SortFunc(v.sorted, func(x, y int32) int {
		if c := bytes.Compare(v.words[x], v.words[y]); c != 0 {
			return c
		}
		return int(x) - int(y)
	})
	type part struct {
		kind  sliceKind
		chars int
	}
	parts := map[part][]int32{}
	v.safe = make([]uint32, v.Words())
	for _, id := range v.sorted {
		p := part{sliceOf(v.words[id]), shortToken}
		switch n := utf8.RuneCount(v.words[id]); {
		case p.kind == sliceRest || n > longToken:
			p = part{sliceRest, 0}
		case n > shortToken:
			p.chars = longToken
		}
		parts[p] = append(parts[p], id)
	}
	for p, ids := range parts {
		s := slice{kind: p.kind, chars: p.chars, tree: v.treeOf(ids), bits: make([]uint32, v.Words())}
		for _, id := range ids {
			s.bits[id>>5] |= 1 << (id & 31)
			if p.chars > 0 && p.kind <= sliceMarks {
				v.safe[id>>5] |= 1 << (id & 31)
			}
		}
		v.slices = append(v.slices, s)
	}
	sorting.Sort(v.slices, func(x, y slice) int { return int(x.kind)*100 + x.chars - int(y.kind)*100 - y.chars })
	return v
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int { return v.size }

// Words is the length of a mask: a bit for each token, 32 a word.
func (v *Vocabulary) Words() int { return (v.size + 31) / 32 }

func sliceOf(w []byte) sliceKind {
	if !utf8.Valid(w) {
		return sliceRest
	}
	lower, letters, marked, lines := true, true, false, false
	for i, c := range w {
		switch {
		case c < 0x20 || c == '"' || c == '\\':
			lines = true
		case strings.IndexByte(marks, c) >= 0:
			marked = true
		case c >= 'a' && c <= 'z':
		case c >= 'A' && c <= 'Z':
			lower = false
		case c == ' ' && i == 0 && len(w) > 1:
			lower = false
		default:
			lower, letters = false, false
		}
	}
	switch {
	case lines && marked:
		return sliceOthers
	case lines:
		return sliceLines
	case marked:
		return sliceMarks
	case lower:
		return sliceLower
	case letters && w[0] == ' ':
		return sliceSpace
	case letters:
		return sliceWord
	}
	return sliceText
}

// treeOf builds the tree of tokens that are sorted by their bytes.
func (v *Vocabulary) treeOf(ids []int32) tree {
	t := tree{same: map[int32][]int32{}}
	var path []int32 // the nodes of the last word
	var last []byte
	for _, id := range ids {
		w := v.words[id]
		common := 0
		for common < len(w) && common < len(last) && w[common] == last[common] {
			common++
		}
		for len(path) > common {
			t.nodes[path[len(path)-1]].skip = int32(len(t.nodes))
			path = path[:len(path)-1]
		}
		for i := common; i < len(w); i++ {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, treeNode{byte: w[i], depth: uint16(i), token: -1})
		}
		if n := &t.nodes[path[len(path)-1]]; n.token < 0 {
			n.token = id
		} else {
			at := path[len(path)-1]
			t.same[at] = append(t.same[at], id)
		}
		t.depth, last = max(t.depth, len(w)), w
	}
	for _, at := range path {
		t.nodes[at].skip = int32(len(t.nodes))
	}
	return t
}

// longer says whether some token begins with text and goes on.
func (v *Vocabulary) longer(text string) bool {
	at, _ := slices.BinarySearchFunc(v.sorted, []byte(text), func(id int32, t []byte) int {
		return bytes.Compare(v.words[id], t)
	})
	for ; at < len(v.sorted); at++ {
		w := v.words[v.sorted[at]]
		if !bytes.HasPrefix(w, []byte(text)) {
			return false
		}
		if len(w) > len(text) {
			return true
		}
	}
	return false
}

// Spell gives tokens for a text: as the tokenizer would, or else the longest first.
func (v *Vocabulary) Spell(text string) []int32 {
	if v.encode != nil {
		ids := v.encode(text)
		var back []byte
		for _, id := range ids {
			back = append(back, v.words[id]...)
		}
		if string(back) == text {
			return ids
		}
	}
	var ids []int32
	for len(text) > 0 {
		n, best := 0, int32(-1)
		for l := min(len(text), longToken); l > 0; l-- {
			at, ok := slices.BinarySearchFunc(v.sorted, []byte(text[:l]), func(id int32, t []byte) int {
				return bytes.Compare(v.words[id], t)
			})
			if ok {
				n, best = l, v.sorted[at]
				break
			}
		}
		if best < 0 {
			return ids
		}
		ids, text = append(ids, best), text[n:]
	}
	return ids
}
