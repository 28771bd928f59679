package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Terminals that were told so mark what is pasted by a text before and behind it ("bracketed paste").
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// namedKeys are Home and End as tmux, screen, rxvt and Linux's console send them, which the editor does not know, and
// what it does.
var namedKeys = map[string]byte{"\x1b[1~": 1, "\x1b[7~": 1, "\x1b[4~": 5, "\x1b[8~": 5}

// pastedSigns stand in the edited line for what would end or complete it.
var pastedSigns = strings.NewReplacer("␤", "\n", "␉", "\t")

// longPaste is how many bytes of a paste are edited; the editor draws the line anew for each character. Of a longer
// one its name stands in the line.
const longPaste = 500

// pasteReader reads keys. A pasted text comes with signs for ends of lines and tabs, so that one of several lines is
// one message, and without other control characters; Ctrl-C ends a paste whose end does not come.
type pasteReader struct {
	io.ReadCloser
	raw    []byte // read, not yet looked at
	ready  []byte // to be given
	inside bool
	paste  []byte
	err    error

	mu    sync.Mutex
	names []string // of long pastes, and
	texts []string // what they are
}

func (p *pasteReader) Read(b []byte) (int, error) {
	for len(p.ready) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		var buf [4096]byte
		n, err := p.ReadCloser.Read(buf[:])
		p.raw, p.err = append(p.raw, buf[:n]...), err
		p.take(err != nil)
	}
	n := copy(b, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

// take looks at what was read. What may be the beginning of a mark waits for the rest, as an escape by itself does in
// the editor too.
func (p *pasteReader) take(end bool) {
	for len(p.raw) > 0 {
		mark, c := pasteBegin, p.raw[0]
		if p.inside {
			mark = pasteEnd
		}
		switch {
		case bytes.HasPrefix(p.raw, []byte(mark)):
			p.raw = p.raw[len(mark):]
			if p.inside = !p.inside; !p.inside {
				p.pasted()
			}
			continue
		case c == 0x1b && !end && strings.HasPrefix(mark, string(p.raw)):
			return
		case len(p.raw) == 3 && !p.inside && !end && namedKeys[string(p.raw)+"~"] != 0:
			return
		case p.inside && c == 3: // Ctrl-C
			p.inside, p.paste = false, nil
		}
		if key := namedKeys[string(p.raw[:min(len(p.raw), 4)])]; key != 0 && !p.inside {
			p.ready, p.raw = append(p.ready, key), p.raw[4:]
			continue
		}
		if p.inside {
			p.paste = append(p.paste, c)
		} else {
			p.ready = append(p.ready, c)
		}
		p.raw = p.raw[1:]
	}
	if end && p.inside {
		p.pasted()
	}
}

// pasted gives what was pasted, or its name.
func (p *pasteReader) pasted() {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(p.paste))
	p.paste = nil
	lines := 1 + strings.Count(strings.TrimRight(text, "\n"), "\n")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '␤'
		case r == '\t':
			return '␉'
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
	if len(text) > longPaste {
		p.mu.Lock()
		name := fmt.Sprintf("[paste %d: %d lines, %d characters]", len(p.names)+1, lines, utf8.RuneCountInString(text))
		p.names, p.texts = append(p.names, name), append(p.texts, text)
		p.mu.Unlock()
		text = name
	}
	p.ready = append(p.ready, text...)
}

// whole puts long pastes where their names stand.
func (p *pasteReader) whole(line string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pairs []string
	for i, name := range p.names {
		pairs = append(pairs, name, p.texts[i])
	}
	return strings.NewReplacer(pairs...).Replace(line)
}
