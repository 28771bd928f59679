// BPE by a list of merges: byte-level (GPT-2 and after), and over characters
// with bytes for the rest (Llama's tokenizer.json).

package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe merges the symbols of one word at a time. Words are raw bytes: the
// alphabet that byte-level vocabularies are written in is undone at loading.
type bpe struct {
	byteLevel    bool
	ignoreMerges bool             // a word that is a token is that token
	start        map[string]int32 // first symbols: single bytes or characters
	whole        map[string]int32 // words that are tokens
	special      map[string]int32 // and those that are only where special ones are read
	byteStart    [256]int32       // byte-level: start for one byte
	merges       map[uint64]merged
	size         int32    // ids from here on are symbols that are no tokens
	texts        []string // of those symbols
	spell        speller  // for what is no symbol
	fuseUnk      bool
	noUnk        string // the unknown token, where the vocabulary lacks it: text that needs it is an error

	// Marks of a word's characters: of those behind the first, and of the last. Characters with marks are in marked.
	prefix, suffix string
	marked         map[string]int32
}

// affixes are the marks.
type affixes struct{ prefix, suffix string }

type merged struct{ rank, id int32 }

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// newBPE builds the tables. merges are pairs of token texts, first is merged
// first; a merge may make a symbol that is no token, which is spelt out again
// where it remains.
func newBPE(pieces []piece, merges [][2]string, byteLevel bool, unk int32, marks affixes) (*bpe, error) {
	b := &bpe{
		byteLevel: byteLevel, prefix: marks.prefix, suffix: marks.suffix, size: int32(len(pieces)),
		whole:  make(map[string]int32, len(pieces)),
		merges: make(map[uint64]merged, len(merges)), spell: newSpeller(pieces, unk), start: map[string]int32{},
		special: map[string]int32{},
	}
	for i := range b.byteStart {
		b.byteStart[i] = None
	}
	symbols := make(map[string]int32, len(pieces)) // as the file spells them
	for id, p := range pieces {
		if p.text == "" || p.outside {
			continue
		}
		if _, taken := symbols[p.text]; taken {
			continue
		}
		symbols[p.text] = int32(id)
		if _, one := onlyRune(p.text); (p.kind == Control || p.kind == Unknown) && !one {
			b.special[p.text] = int32(id) // never spelt by chance, but no character gets lost
			continue
		}
		text := p.text
		if byteLevel {
			raw, ok := fromByteAlphabet(p.text)
			if !ok {
				continue
			}
			text = raw
		}
		if _, taken := b.whole[text]; !taken {
			b.whole[text] = int32(id)
		}
		if byteLevel && len(text) == 1 {
			b.byteStart[text[0]] = int32(id)
		}
	}
	intern := func(text string) int32 {
		id, ok := symbols[text]
		if !ok {
			id = b.size + int32(len(b.texts))
			symbols[text] = id
			b.texts = append(b.texts, text)
			if r, one := onlyRune(text); byteLevel && one {
				if c, ok := byteOf(r); ok {
					b.byteStart[c] = id
				}
			} else if one {
				b.start[text] = id
			}
		}
		return id
	}
	for rank, m := range merges {
		if m[0] == "" || m[1] == "" {
			return nil, fmt.Errorf("merge %d: expected two symbols, found %q and %q", rank, m[0], m[1])
		}
		key := pairKey(intern(m[0]), intern(m[1]))
		if len(m[1]) < len(b.prefix) {
			return nil, fmt.Errorf("merge %d: %q is shorter than continuing_subword_prefix %q", rank, m[1], b.prefix)
		}
		if _, taken := b.merges[key]; !taken {
			b.merges[key] = merged{int32(rank), intern(m[0] + m[1][len(b.prefix):])}
		}
	}
	if b.prefix != "" || b.suffix != "" {
		b.marked = symbols
	}
	return b, nil
}

func onlyRune(s string) (rune, bool) {
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s) && n > 0
}

func (b *bpe) pair(_ string, left, right *symbol) (rank, id int32, ok bool) {
	if left.id < 0 || right.id < 0 {
		return 0, 0, false
	}
	m, ok := b.merges[pairKey(left.id, right.id)]
	return m.rank, m.id, ok
}

// wordCache remembers words within one Encode: text repeats itself.
type wordCache struct {
	merger merger
	words  map[string][]int32
	err    error
}

const (
	cachedWord  = 48      // bytes of the longest word that is remembered
	cachedWords = 1 << 14 // how many are
)

// encodeWord appends the ids of one word.
func (b *bpe) encodeWord(dst []int32, word string, c *wordCache, special bool) []int32 {
	if b.ignoreMerges {
		if id, ok := b.special[word]; ok && special {
			return append(dst, id)
		}
		if id, ok := b.whole[word]; ok {
			return append(dst, id)
		}
	}
	if ids, ok := c.words[word]; ok {
		return append(dst, ids...)
	}
	before := len(dst)
	dst = b.mergeWord(dst, word, c)
	if len(word) <= cachedWord && len(c.words) < cachedWords {
		if c.words == nil {
			c.words = make(map[string][]int32)
		}
		c.words[strings.Clone(word)] = append([]int32(nil), dst[before:]...)
	}
	return dst
}

// mergeWord keeps the library's order: an unknown symbol is put in when a known one or the word's end comes, behind
// bytes that stand between.
func (b *bpe) mergeWord(dst []int32, word string, c *wordCache) []int32 {
	m := &c.merger
	m.reset()
	waits := false
	put := func(id int32, end int) {
		if waits {
			m.add(b.spell.unk, end)
		}
		if waits = false; id != None {
			m.add(id, end)
		}
	}
	for i := 0; i < len(word); {
		n, id := 1, None
		if b.byteLevel {
			id = b.byteStart[word[i]]
		} else {
			_, n = utf8.DecodeRuneInString(word[i:])
			id = b.symbol(word, i, n)
		}
		switch {
		case id != None:
			put(id, i+n)
		case !b.byteLevel && b.addBytes(m, word, i, n):
		case b.noUnk != "":
			c.err = fmt.Errorf("%q is no symbol, and the unknown token %q is none either", word[i:i+n], b.noUnk)
		case b.spell.unk != None: // without an unknown token it is left out, and its neighbours may merge
			if waits && !b.fuseUnk {
				put(None, i)
			}
			waits = true
		}
		i += n
	}
	if put(None, len(word)); len(m.symbols) == 0 {
		return dst
	}
	m.run(word, b)
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		if s := &m.symbols[i]; s.id >= b.size { // a merge that leads to no token
			dst = b.letters(dst, b.texts[s.id-b.size])
		} else {
			dst = append(dst, s.id)
		}
	}
	return dst
}

// marks puts the marks on word[at:at+n].
func (b *bpe) marks(word string, at, n int) string {
	char := word[at : at+n]
	if at > 0 {
		char = b.prefix + char
	}
	if at+n == len(word) {
		char += b.suffix
	}
	return char
}

// symbol finds the first symbol of a character, or None.
func (b *bpe) symbol(word string, at, n int) int32 {
	if b.marked != nil {
		if id, ok := b.marked[b.marks(word, at, n)]; ok {
			return id
		}
		return None
	}
	char := word[at : at+n]
	if id, ok := b.whole[char]; ok {
		return id
	}
	if id, ok := b.start[char]; ok {
		return id
	}
	return None
}

// addBytes adds a character's bytes, where all of them have tokens.
func (b *bpe) addBytes(m *merger, word string, at, n int) bool {
	char := b.marks(word, at, n)
	if !b.spell.spells(char) {
		return false
	}
	for i := range len(char) {
		m.add(b.spell.bytes[char[i]], at+min(i+1, n))
	}
	return true
}

// letters spells a symbol that is no token by its single characters.
func (b *bpe) letters(dst []int32, text string) []int32 {
	if b.byteLevel {
		text, _ = fromByteAlphabet(text)
		for i := 0; i < len(text); i++ {
			if id := b.byteStart[text[i]]; id >= 0 && id < b.size {
				dst = append(dst, id)
			} else if b.spell.unk != None {
				dst = append(dst, b.spell.unk)
			}
		}
		return dst
	}
	for _, r := range text {
		if id, ok := b.whole[string(r)]; ok {
			dst = append(dst, id)
		} else {
			dst, _ = b.spell.append(dst, string(r), false)
		}
	}
	return dst
}
