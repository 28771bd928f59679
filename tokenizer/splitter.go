// Tokens that are matched whole in text.

package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// splitter cuts tokens that are matched whole out of text, leftmost and
// longest first. A nil splitter finds none.
type splitter struct {
	trie  *trie
	first [256]bool // bytes that begin a token
	// control tokens are found, and left as text where special tokens are not
	// read: no other token is found within them.
	control bool
}

func newSplitter(pieces []piece, want func(piece) bool) *splitter {
	var keys []trieKey
	for id, p := range pieces {
		if want(p) {
			keys = append(keys, trieKey{p.text, int32(id)})
		}
	}
	return splitterOf(keys)
}

func splitterOf(keys []trieKey) *splitter {
	s := &splitter{}
	kept := keys[:0:0]
	for _, k := range keys {
		if k.text != "" {
			kept = append(kept, k)
			s.first[k.text[0]] = true
		}
	}
	if len(kept) == 0 {
		return nil
	}
	s.trie = newTrie(kept)
	return s
}

// each calls visit for the parts of text in order, with the byte at which each
// begins: stretches of plain text with id None, and tokens. It stops at an error.
func (s *splitter) each(text string, pieces []piece, special bool,
	visit func(part string, at int, id int32) error) error {
	start := 0
	for i := 0; s != nil && i < len(text); {
		if !s.first[text[i]] {
			i++
			continue
		}
		n, id := s.trie.longest(text[i:])
		if id == None {
			i++
			continue
		}
		from, to := i, i+n
		i = to
		p := &pieces[id]
		if s.control && !special && p.kind == Control || p.single && insideWord(text, from, to) {
			continue
		}
		if p.lstrip {
			from = max(start, len(strings.TrimRightFunc(text[:from], unicode.IsSpace)))
		}
		if p.rstrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
		}
		if from >= to { // swallowed by the one before
			continue
		}
		if start < from {
			if err := visit(text[start:from], start, None); err != nil {
				return err
			}
		}
		if err := visit(text[from:to], from, id); err != nil {
			return err
		}
		start = to
	}
	if start < len(text) {
		return visit(text[start:], start, None)
	}
	return nil
}

// insideWord says that a character of a word stands directly before from or
// at to.
func insideWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return from > 0 && wordRune(before) || to < len(text) && wordRune(after)
}

// wordRune is \w of Rust's regular expressions.
func wordRune(r rune) bool {
	return r == 0x200C || r == 0x200D || setWord().has(r)
}

// setSplitters finds tokens by what the vocabulary's format says of their
// kinds, and added tokens by their flags. The model must be set.
func (t *Tokenizer) setSplitters(user, special func(piece) bool) {
	raw := func(want func(piece) bool) func(piece) bool {
		return func(p piece) bool {
			if p.added {
				return !p.normalized
			}
			return want(p)
		}
	}
	t.user, t.split = newSplitter(t.pieces, raw(user)), newSplitter(t.pieces, raw(special))
	if t.user != nil {
		t.user.control = true
	}
	var keys []trieKey
	for id, p := range t.pieces {
		if p.added && p.normalized {
			if text, _, err := t.model.normalize(p.text, true); err == nil {
				keys = append(keys, trieKey{text, int32(id)})
			}
		}
	}
	if t.normed = splitterOf(keys); t.normed != nil {
		t.normed.control = true
	}
}

// checkNormalized refuses an added token of whose text nothing is left: the library finds it between all characters.
func (t *Tokenizer) checkNormalized() error {
	for _, p := range t.pieces {
		if p.added && p.normalized {
			if text, _, err := t.model.normalize(p.text, true); err == nil && text == "" {
				return fmt.Errorf("added_tokens: %q, of which the normalizer leaves nothing, is not supported", p.text)
			}
		}
	}
	return nil
}
