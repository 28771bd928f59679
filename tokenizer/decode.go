// Decoding: ids to text, whole or as they come.

package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// leading says which spaces at the beginning of decoded text were put there by
// encoding and are taken off again.
type leading uint8

const (
	keepLead  leading = iota
	dropOne           // the dummy prefix: one space before the first piece
	dropAll           // pieces add no space as long as the text is empty
	dropFirst         // all spaces of the first piece, as Metaspace has it
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
}

// NewDecoder begins a text. To stream a continuation, write the prompt's ids
// first and discard what they give.
func (t *Tokenizer) NewDecoder() *Decoder {
	return &Decoder{t: t, started: t.lead == keepLead}
}

// Write gives the text that id completes: possibly none, as long as the bytes
// at the end may become a character.
func (d *Decoder) Write(id int32) string {
	if id < 0 || int(id) >= len(d.t.output) {
		return d.push("\uFFFD")
	}
	if d.t.pieces[id].kind == Control {
		return ""
	}
	out := d.t.output[id]
	if !d.started {
		switch {
		case d.t.pieces[id].kind == Byte:
		case d.t.lead == dropFirst:
			out = strings.ReplaceAll(out, " ", "")
		default:
			out = strings.TrimPrefix(out, " ")
		}
		d.started = d.t.lead != dropAll || out != ""
	}
	return d.push(out)
}

// Flush ends the text: bytes of an unfinished character come out as U+FFFD.
func (d *Decoder) Flush() string {
	n := len(d.pending)
	d.pending = d.pending[:0]
	return strings.Repeat("\uFFFD", n)
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
		b.WriteRune(r)
		buf = buf[n:]
	}
	d.pending = append(d.pending[:0], buf...)
	return b.String()
}

// Bytes gives the bytes that a token adds to a text that has begun: possibly a
// part of a character. Control tokens and ids out of range add none.
func (t *Tokenizer) Bytes(id int32) string {
	if id < 0 || int(id) >= len(t.output) || t.pieces[id].kind == Control {
		return ""
	}
	return t.output[id]
}
