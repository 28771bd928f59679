// Decoders of tokenizer.json.

package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// hfChain is what a tokenizer.json's decoder does: steps for each token, and characters that are taken off the text
// which the tokens then make.
type hfChain struct {
	steps []func(token string, first bool) string
	form  wordForm
	strip string  // the character
	count int     // how many at most
	other []int32 // control tokens that are not left out, and others that are

	bytes, fused bool           // which of the steps that join tokens have been
	fallback     int            // how many steps end with ByteFallback; 0: it is not among them
	raw          map[int32]byte // by id: what it makes bytes of
	suffix       string         // BPEDecoder's mark of a word's end: a space, but in the last token
}

func (c *hfChain) apply(token string, first bool) string {
	for _, step := range c.steps {
		token = step(token, first)
	}
	return token
}

// behindBytes is what the steps behind ByteFallback make of its text.
func (c *hfChain) behindBytes(token string, first bool) string {
	for _, step := range c.steps[c.fallback:] {
		token = step(token, first)
	}
	return token
}

func (c *hfChain) add(step func(token string, first bool) string) { c.steps = append(c.steps, step) }

// addEach adds a step that is the same for all tokens.
func (c *hfChain) addEach(step func(string) string) {
	c.add(func(token string, _ bool) string { return step(token) })
}

// hfDecoder turns the decoder into what each token adds to text. Without a decoder the library puts spaces between the
// tokens of all but byte-level vocabularies, whose bytes are text here.
func (t *Tokenizer) hfDecoder(d *hfPart, byteLevel bool, form wordForm) error {
	c := &hfChain{form: form}
	switch {
	case d == nil && byteLevel:
		d = &hfPart{Type: "ByteLevel"}
	case d == nil:
		c.add(spaced)
	}
	for _, part := range d.flatten("decoders") {
		if err := c.read(part); err != nil {
			return err
		}
	}
	t.chain, t.lossy, c.raw = c, c.bytes, map[int32]byte{}
	t.output = make([]string, len(t.pieces))
	special := map[string]bool{}
	for _, p := range t.pieces {
		if p.kind == Control {
			special[p.text] = true
		}
	}
	for id, p := range t.pieces {
		hide := p.kind == Control
		if p.added && p.normalized {
			hide = special[t.spelling(p)]
		}
		if hide != (p.kind == Control) {
			c.other = append(c.other, int32(id))
		}
		if !hide {
			t.output[id] = t.adds(p, false)
			c.readByte(int32(id), t.spelling(p))
		}
	}
	return nil
}

// adds is what a piece adds to text. Added tokens are text where the byte alphabet would make none of them: those that
// the vocabulary lacks, or has for a byte that no text has.
func (t *Tokenizer) adds(p piece, first bool) string {
	token := t.spelling(p)
	out := t.chain.apply(token, first)
	if p.added && t.chain.bytes && !utf8.ValidString(out) && (p.outside || neverUTF8(out)) {
		return token
	}
	return out
}

// readByte notes a token that ByteFallback finds a byte in.
func (c *hfChain) readByte(id int32, token string) {
	if c.fallback == 0 {
		return
	}
	for _, step := range c.steps[:c.fallback-1] {
		token = step(token, false)
	}
	if b, ok := byteToken(token); ok {
		c.raw[id] = b
	}
}

// neverUTF8 finds bytes that are part of no character.
func neverUTF8(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == 0xC0 || c == 0xC1 || c >= 0xF5 {
			return true
		}
	}
	return false
}

// hidden says that decoding leaves the token out: control tokens. The library knows these by their text behind the
// normalizer.
func (t *Tokenizer) hidden(id int32) bool {
	return (t.pieces[id].kind == Control) != (t.chain != nil && slices.Contains(t.chain.other, id))
}

// spelling is a token as the decoder sees it: an added one as it was matched, one of GGUF's WordPiece with its mark.
func (t *Tokenizer) spelling(p piece) string {
	if p.added && p.normalized {
		if text, _, err := t.model.normalize(p.text, true); err == nil {
			return text
		}
	}
	if t.chain.form.phantom && p.kind == Normal {
		letters, begins := t.chain.form.cut(p.text)
		if begins {
			return letters
		}
		return t.chain.form.prefix + letters
	}
	return p.text
}

// spaced puts a space before each token but the first.
func spaced(token string, first bool) string {
	if first {
		return token
	}
	return " " + token
}

// read adds a decoder. Behind those that join tokens, only what can be said of each token is right.
func (c *hfChain) read(part *hfPart) error {
	if c.suffix != "" {
		return fmt.Errorf("%s behind BPEDecoder is not supported", part.Type)
	}
	behind := func(joined bool, what string) error {
		if joined {
			return fmt.Errorf("%s behind a decoder that joins tokens (%s) is not supported", part.Type, what)
		}
		return nil
	}
	switch part.Type {
	case "ByteLevel":
		if err := behind(c.bytes || c.fallback > 0 || c.fused, "ByteLevel, ByteFallback or Fuse"); err != nil {
			return err
		}
		c.bytes, c.fused = true, true
		c.addEach(func(token string) string {
			raw, _ := fromByteAlphabet(token)
			return raw
		})
	case "ByteFallback":
		if err := behind(c.bytes || c.fallback > 0 || c.fused, "ByteLevel, ByteFallback or Fuse"); err != nil {
			return err
		}
		c.addEach(func(token string) string {
			if b, ok := byteToken(token); ok {
				return string([]byte{b})
			}
			return token
		})
		c.fallback = len(c.steps)
	case "Fuse":
		c.fused = true
	case "Metaspace":
		return c.metaspace(part)
	case "Replace":
		old, ok := part.literal()
		if !ok {
			return errors.New("Replace by a regular expression is not supported")
		}
		if old == "" {
			return errors.New("Replace of an empty string")
		}
		_, one := onlyRune(old)
		if err := behind(c.fused && !one, "of more than one character"); err != nil {
			return err
		}
		if err := behind(c.bytes, "ByteLevel"); err != nil {
			return err
		}
		content := part.text()
		c.addEach(func(token string) string { return strings.ReplaceAll(token, old, content) })
	case "Strip":
		return c.readStrip(part)
	case "WordPiece":
		if err := behind(c.bytes || c.fallback > 0 || c.fused, "ByteLevel, ByteFallback or Fuse"); err != nil {
			return err
		}
		c.wordPiece(part)
	case "BPEDecoder":
		return c.readSuffix(part)
	default:
		return fmt.Errorf("type %q is not supported", part.Type)
	}
	return nil
}

// metaspace writes the mark as a space, and leaves out those of the first token, where a prefix was put.
func (c *hfChain) metaspace(part *hfPart) error {
	mark, prefixed := part.replacement(), part.scheme() != "never"
	if _, one := onlyRune(mark); c.bytes || c.fused && (prefixed || !one) {
		return errors.New("Metaspace behind a decoder that joins tokens is not supported")
	}
	c.add(func(token string, first bool) string {
		if first && prefixed {
			return strings.ReplaceAll(token, mark, "")
		}
		return strings.ReplaceAll(token, mark, " ")
	})
	return nil
}

func (c *hfChain) readStrip(part *hfPart) error {
	char := part.text()
	if _, one := onlyRune(char); !one || part.Stop != 0 || part.Start < 0 {
		return errors.New("Strip of anything but characters that a text begins with is not supported")
	}
	switch {
	case c.fused && (c.bytes && char[0] >= utf8.RuneSelf || c.strip != "" && c.strip != char):
		return errors.New("Strip of two characters, or one beyond ASCII, behind a decoder that joins tokens is not supported")
	case c.fused:
		c.strip, c.count = char, c.count+part.Start
	default:
		c.addEach(func(token string) string { return cutLeading(token, char, part.Start) })
	}
	return nil
}

// readSuffix writes the mark of a word's end as a space, and of the last token as nothing. It is the last step, and the
// only one: what others would make of the space is not known before the next token is.
func (c *hfChain) readSuffix(part *hfPart) error {
	suffix := "</w>"
	if part.Suffix != nil {
		suffix = *part.Suffix
	}
	if suffix == "" || len(c.steps) > 0 || c.fused {
		return errors.New("BPEDecoder beside other decoders, or without a suffix, is not supported")
	}
	c.suffix = suffix
	c.addEach(func(token string) string { return strings.ReplaceAll(token, suffix, " ") })
	return nil
}

// held is what a token adds where others follow, from the mark on, and where none does.
func (c *hfChain) held(token string) (now string, then heldText) {
	if c.suffix == "" {
		return token, heldText{}
	}
	before, _, found := strings.Cut(token, c.suffix)
	if !found {
		return token, heldText{}
	}
	rest := token[len(before):]
	return before, heldText{strings.ReplaceAll(rest, c.suffix, " "), strings.ReplaceAll(rest, c.suffix, "")}
}

// heldText waits for the next token: what it is if there is one, and if there is none.
type heldText struct{ more, last string }

// cutLeading takes off up to count times what s begins with.
func cutLeading(s, char string, count int) string {
	for ; count > 0 && strings.HasPrefix(s, char); count-- {
		s = s[len(char):]
	}
	return s
}

// cleanups take off the spaces that words got which are none, one after another.
var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
	{" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

func cleaned(s string) string {
	for _, c := range cleanups {
		s = strings.ReplaceAll(s, c[0], c[1])
	}
	return s
}

// wordPiece joins what continues a word to it.
func (c *hfChain) wordPiece(part *hfPart) {
	prefix, clean := part.Prefix, part.Cleanup == nil || *part.Cleanup
	c.add(func(token string, first bool) string {
		if rest, behind := strings.CutPrefix(token, prefix); behind && !first {
			token = rest
		} else {
			token = spaced(token, first)
		}
		if clean {
			token = cleaned(token)
		}
		return token
	})
}
