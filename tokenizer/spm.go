// SentencePiece BPE: neighbours merge in the order of their piece's score.

package tokenizer

import (
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"
)

// spm is SentencePiece's BPE model behind its normalizer.
type spm struct {
	norm   *spNormalizer
	vocab  map[string]int32 // pieces that text can become
	rank   []int32          // by id: position of its score in descending order
	maxLen int              // bytes of the longest piece
	frozen *trie            // user-defined pieces, which never merge; may be nil
	unused map[int32]bool   // pieces that help merging but are split again
	strict bool             // so are characters, which then are unknown
	spell  speller
}

// speller gives ids for text that no piece spells.
type speller struct {
	bytes    [256]int32
	fallback bool // all 256 bytes have tokens
	partly   bool // text is spelt whose bytes have some
	unk      int32
}

func newSpeller(pieces []piece, unk int32) speller {
	s := speller{unk: unk, fallback: true}
	for i := range s.bytes {
		s.bytes[i] = None
	}
	for id, p := range pieces {
		if b, ok := byteToken(p.text); ok && (p.kind == Byte) {
			s.bytes[b] = int32(id)
		}
	}
	for _, id := range s.bytes {
		s.fallback = s.fallback && id != None
	}
	return s
}

// hfSpeller spells by the bytes that a tokenizer.json's vocabulary has, of whatever kind they are.
func hfSpeller(pieces []piece, unk int32, bytes bool) speller {
	s := newSpeller(nil, unk)
	for id, p := range pieces {
		if c, ok := byteToken(p.text); ok && bytes && !p.outside && p.text == fmt.Sprintf("<0x%02X>", c) {
			s.bytes[c] = int32(id)
		}
	}
	s.fallback = !slices.Contains(s.bytes[:], None)
	return s
}

// spells says that all bytes of text have tokens.
func (s *speller) spells(text string) bool {
	for i := 0; i < len(text); i++ {
		if s.bytes[text[i]] == None {
			return false
		}
	}
	return true
}

// append adds bytes where the vocabulary has them, or else one unknown token
// for a whole run of such text: prevUnk says that the run has begun.
func (s *speller) append(dst []int32, text string, prevUnk bool) ([]int32, bool) {
	if s.fallback || s.partly && s.spells(text) {
		for i := 0; i < len(text); i++ {
			dst = append(dst, s.bytes[text[i]])
		}
		return dst, false
	}
	if !prevUnk && s.unk != None {
		dst = append(dst, s.unk)
	}
	return dst, true
}

// byteToken reads "<0x0A>".
func byteToken(text string) (byte, bool) {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(text[3])
	lo, ok2 := hexDigit(text[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// newSPM builds the model. freeze matches user-defined pieces inside the model,
// as SentencePiece does; otherwise they are cut out of the text beforehand.
func newSPM(pieces []piece, norm *spNormalizer, unk int32, freeze bool) *spm {
	s := &spm{norm: norm, strict: freeze, vocab: make(map[string]int32, len(pieces)), unused: map[int32]bool{},
		spell: newSpeller(pieces, unk)}
	order := make([]int32, 0, len(pieces))
	var keys []trieKey
	for id, p := range pieces {
		if p.outside {
			continue
		}
		switch p.kind {
		case Control, Unknown, Byte:
			continue
		case UserDefined:
			if freeze && !p.added && p.text != "" {
				keys = append(keys, trieKey{p.text, int32(id)})
			}
		case Unused:
			s.unused[int32(id)] = true
		}
		if _, taken := s.vocab[p.text]; taken {
			continue
		}
		s.vocab[p.text] = int32(id)
		s.maxLen = max(s.maxLen, len(p.text))
		order = append(order, int32(id))
	}
	if len(keys) > 0 {
		s.frozen = newTrie(keys)
	}
	s.rank = rankByScore(pieces, order)
	return s
}

// rankByScore numbers the ids by descending score; equal scores share a number.
func rankByScore(pieces []piece, ids []int32) []int32 {
	sort.SliceStable(ids, func(i, j int) bool { return pieces[ids[i]].score > pieces[ids[j]].score })
	rank := make([]int32, len(pieces))
	for i, id := range ids {
		rank[id] = int32(i)
		if i > 0 && pieces[id].score == pieces[ids[i-1]].score {
			rank[id] = rank[ids[i-1]]
		}
	}
	return rank
}

// frozenSymbol marks a symbol that takes no part in merges.
const frozenSymbol int32 = -2

func (s *spm) pair(text string, left, right *symbol) (rank, id int32, ok bool) {
	if int(right.end-left.start) > s.maxLen || left.id == frozenSymbol || right.id == frozenSymbol {
		return 0, 0, false
	}
	id, ok = s.vocab[text[left.start:right.end]]
	if !ok {
		return 0, 0, false
	}
	return s.rank[id], id, true
}

func (s *spm) normalize(text string, first bool) (string, int, error) {
	return s.norm.normalize(text, first), 0, nil
}

func (s *spm) encode(dst []int32, text string, _ int, _ bool) ([]int32, error) {
	m := &merger{symbols: make([]symbol, 0, len(text))}
	for i := 0; i < len(text); {
		n, id := 0, None
		if s.frozen != nil {
			if n, id = s.frozen.longest(text[i:]); id != None {
				id = frozenSymbol
			}
		}
		if id == None {
			_, n = utf8.DecodeRuneInString(text[i:])
		}
		i += n
		m.add(id, i)
	}
	if len(m.symbols) == 0 {
		return dst, nil
	}
	m.run(text, s)
	prevUnk := false
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		dst, prevUnk = s.emit(dst, text[m.symbols[i].start:m.symbols[i].end], prevUnk, 0)
	}
	return dst, nil
}

// emit appends a merged symbol. An unused piece is taken apart again, at the
// split whose parts would have merged first.
func (s *spm) emit(dst []int32, text string, prevUnk bool, depth int) ([]int32, bool) {
	id, ok := s.vocab[text]
	if !ok {
		return s.spell.append(dst, text, prevUnk)
	}
	if !s.unused[id] || depth > len(text) {
		return append(dst, id), false
	}
	best, cut := int32(-1), 0
	for i := range text {
		l, okL := s.vocab[text[:i]]
		r, okR := s.vocab[text[i:]]
		if i > 0 && okL && okR {
			if worst := max(s.rank[l], s.rank[r]); cut == 0 || worst < best {
				best, cut = worst, i
			}
		}
	}
	if cut == 0 && s.strict { // a character: it has no token
		return s.spell.append(dst, text, prevUnk)
	}
	if cut == 0 {
		return append(dst, id), false
	}
	dst, prevUnk = s.emit(dst, text[:cut], prevUnk, depth+1)
	return s.emit(dst, text[cut:], prevUnk, depth+1)
}
