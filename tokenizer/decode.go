// Decoding: ids to text, whole or as they come.

package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// leading says which spaces at the beginning of decoded text were put there by
// encoding and are taken off again.
type leading uint8

const (
	keepLead leading = iota
	dropOne          // the dummy prefix: one space before the first piece
	dropAll          // pieces add no space as long as the text is empty
)

// Decode gives the text of ids. Control tokens add nothing; a byte that is not
// part of a UTF-8 character becomes U+FFFD, and so does an id out of range.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	d := t.NewDecoder()
	for _, id := range ids {
		b.WriteString(d.Write(id))
	}
	b.WriteString(d.Flush())
	return b.String()
}

// Decoder decodes a stream of ids and never splits a character: its outputs,
// joined, are what Decode gives for all ids at once.
type Decoder struct {
	t       *Tokenizer
	pending []byte // the beginning of a UTF-8 character: up to three bytes
	started bool   // no leading space is dropped any more
	strip   int    // how many characters a tokenizer.json's decoder still takes off
	held    heldText
	run     []byte // bytes of a tokenizer.json's ByteFallback, which are text together or not at all
}

// NewDecoder begins a text. To stream a continuation, write the prompt's ids
// first and discard what they give.
func (t *Tokenizer) NewDecoder() *Decoder {
	d := &Decoder{t: t, started: t.chain == nil && t.lead == keepLead}
	if t.chain != nil {
		d.strip = t.chain.count
	}
	return d
}

// Write gives the text that id completes: possibly none, as long as the bytes
// at the end may become a character, or others may follow that make them none.
func (d *Decoder) Write(id int32) string {
	if id < 0 || int(id) >= len(d.t.output) {
		return d.endRun() + d.push("\uFFFD")
	}
	if d.t.hidden(id) {
		return ""
	}
	out, c := d.t.output[id], d.t.chain
	if c == nil {
		if !d.started {
			if kind := d.t.pieces[id].kind; kind != Byte && kind != Unknown {
				out = strings.TrimPrefix(out, " ")
			}
			d.started = d.t.lead != dropAll || out != ""
		}
		return d.push(out)
	}
	if b, ok := c.raw[id]; ok {
		d.run = append(d.run, b)
		return ""
	}
	run := d.endRun()
	if !d.started {
		out, d.started = d.t.adds(d.t.pieces[id], true), true
	}
	out = d.stripped(out)
	if c.suffix != "" {
		before := d.held.more
		out, d.held = c.held(d.t.spelling(d.t.pieces[id]))
		out = before + out
	}
	return run + d.push(out)
}

// stripped takes off what the decoder still does.
func (d *Decoder) stripped(out string) string {
	if d.strip > 0 && out != "" {
		char := d.t.chain.strip
		rest := cutLeading(out, char, d.strip)
		if d.strip -= (len(out) - len(rest)) / len(char); rest != "" {
			d.strip = 0
		}
		return rest
	}
	return out
}

// endRun gives the text of bytes that came one behind the other, or a U+FFFD for each where they are none.
func (d *Decoder) endRun() string {
	if len(d.run) == 0 {
		return ""
	}
	tokens := []string{string(d.run)}
	if !utf8.Valid(d.run) {
		tokens = slices.Repeat([]string{"\uFFFD"}, len(d.run))
	}
	d.run = nil
	var b strings.Builder
	for _, token := range tokens {
		b.WriteString(d.stripped(d.t.chain.behindBytes(token, !d.started)))
		d.started = true
	}
	return b.String()
}

// Flush ends the text: bytes of an unfinished character come out as U+FFFD.
func (d *Decoder) Flush() string {
	last := d.endRun() + d.held.last
	d.held = heldText{}
	if last != "" {
		last = d.push(last)
	}
	n := len(d.pending)
	if d.t.lossy {
		n = min(n, 1)
	}
	d.pending = nil
	return last + strings.Repeat("\uFFFD", n)
}

func (d *Decoder) push(s string) string {
	if len(d.pending) == 0 && utf8.ValidString(s) {
		return s
	}
	d.pending = append(d.pending, s...)
	buf := d.pending
	var b strings.Builder
	for len(buf) > 0 && utf8.FullRune(buf) {
		r, n := utf8.DecodeRune(buf) // RuneError of one byte where it is invalid
		if r == utf8.RuneError && n == 1 && d.t.lossy {
			for n < len(buf) && !utf8.FullRune(buf[:n]) {
				n++
			}
			if n > 1 { // the last of them does not belong to it any more
				n--
			}
		}
		b.WriteRune(r)
		buf = buf[n:]
	}
	d.pending = append(d.pending[:0], buf...)
	return b.String()
}

// Bytes gives the bytes that a token adds to a text that has begun: possibly a
// part of a character. Control tokens and ids out of range add none.
func (t *Tokenizer) Bytes(id int32) string {
	if id < 0 || int(id) >= len(t.output) || t.hidden(id) {
		return ""
	}
	return t.output[id]
}
