package main

// The editor of greta chat: keys change a line, which is drawn in a terminal.

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// editor reads lines that a person types.
type editor struct {
	ctx  context.Context
	in   io.Reader
	out  io.Writer
	raw  func() (restore func(), err error) // the terminal gives keys as they are, until restore
	size func() (width, height int)
	stop func() // as Ctrl-Z does; nil: nothing does

	bytes   []byte // read, not yet taken as keys
	err     error  // of reading
	reading bool
	got     chan chunk

	line
	prompt   string
	top, row int  // of the line's rows the first that is seen; the cursor's, counted from it
	width    int  // of the terminal when it was drawn
	before   int  // columns that were drawn before the cursor
	broken   bool // the cursor's row is one that the terminal did not begin by itself
	history  history
	search   *search
}

// chunk is what one read gave.
type chunk struct {
	data []byte
	err  error
}

// search is a search in the history under way.
type search struct {
	text   string
	at     int // of the line that has it
	failed bool
	before line
}

var chatCommands = []string{"/help", "/clear", "/system", "/set", "/save", "/load", "/undo", "/retry", "/thoughts",
	"/bye"}

// newEditor edits lines in a terminal. ctx ends it.
func newEditor(ctx context.Context, in, out *os.File, historyFile string) *editor {
	e := &editor{ctx: ctx, in: in, out: out, got: make(chan chunk, 1), stop: suspend}
	e.raw = func() (func(), error) {
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return nil, fmt.Errorf("the terminal: %w", err)
		}
		plain := drawable(out)
		return func() {
			plain()
			_ = term.Restore(int(in.Fd()), state) // it was there before; nothing is left to do where it is gone
		}, nil
	}
	e.size = func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	}
	e.history.open(historyFile)
	return e
}

// next reads a line.
func (e *editor) next(more bool) (string, error) {
	restore, err := e.raw()
	if err != nil {
		return "", err
	}
	defer func() { restore() }()
	if e.prompt = ">>> "; more {
		e.prompt = "... "
	}
	e.line, e.search = line{killed: e.killed}, nil
	e.afresh()
	e.history.begin()
	io.WriteString(e.out, pasteOn)
	defer io.WriteString(e.out, pasteOff)
	for {
		if len(e.bytes) == 0 {
			e.draw()
		}
		k, err := e.key()
		if err != nil {
			e.leave("")
			return "", err
		}
		if e.searched(k) {
			continue
		}
		switch k.code {
		case '\r', '\n':
			e.leave("")
			text := strings.TrimRight(e.whole(), "\n")
			e.history.add(text)
			return text, nil
		case ctrlC:
			e.leave("^C")
			return "", errInterrupt
		case ctrl('d'):
			if e.text == "" {
				e.leave("")
				return "", io.EOF
			}
			e.edit(k)
		case ctrl('z'):
			if e.stop != nil {
				e.leave("^Z")
				restore()
				e.stop()
				if restore, err = e.raw(); err != nil {
					restore = func() {}
					return "", err
				}
			}
		default:
			e.do(k)
		}
	}
}

// do does what a key says that does not end the line.
func (e *editor) do(k key) {
	switch k.code {
	case ctrl('p'), ctrl('n'):
		back := 1
		if k.code == ctrl('n') {
			back = -1
		}
		if text, ok := e.history.move(back, e.whole()); ok {
			e.put(0, len(e.text), "")
			e.paste(text)
		}
	case ctrl('r'):
		e.search = &search{at: len(e.history.lines), before: e.line}
	case ctrl('l'):
		io.WriteString(e.out, "\x1b[H\x1b[2J")
		e.afresh()
	case '\t':
		e.complete()
	default:
		e.edit(k)
	}
}

// key waits for a key.
func (e *editor) key() (key, error) {
	for {
		if len(e.bytes) > 0 {
			k, rest, ok := firstKey(e.bytes, e.err != nil)
			if e.bytes = rest; ok {
				return k, nil
			}
		}
		if e.err != nil {
			return key{}, e.err
		}
		if !e.reading {
			e.reading = true
			go func() {
				buf := make([]byte, 4096)
				n, err := e.in.Read(buf)
				e.got <- chunk{buf[:n], err}
			}()
		}
		select {
		case c := <-e.got:
			e.reading, e.err = false, c.err
			e.bytes = append(e.bytes, c.data...)
		case <-e.ctx.Done():
			return key{}, e.ctx.Err()
		}
	}
}

// searched does what a key says while the history is searched, false where it ends the search and says something else.
func (e *editor) searched(k key) bool {
	s := e.search
	if s == nil {
		return false
	}
	from := s.at
	switch k.code {
	case 0:
		s.text += k.text
		from = min(s.at+1, len(e.history.lines))
	case ctrl('r'):
	case ctrl('h'), keyBackspace:
		l := line{text: s.text}
		s.text, from = s.text[:l.before(len(s.text))], len(e.history.lines)
	case ctrl('g'), ctrlC:
		e.line, e.search = s.before, nil
		return true
	default:
		e.search = nil
		return false
	}
	if s.text == "" {
		return true
	}
	at := e.history.find(s.text, from)
	if s.failed = at < 0; !s.failed {
		s.at = at
		e.put(0, len(e.text), "")
		e.paste(e.history.lines[at])
	}
	return true
}

// complete goes on with a command as far as it is certain, or lists those that begin so.
func (e *editor) complete() {
	if !strings.HasPrefix(e.text, "/") || e.pos < len(e.text) {
		return
	}
	var fit []string
	for _, c := range chatCommands {
		if strings.HasPrefix(c, e.text) {
			fit = append(fit, c)
		}
	}
	switch len(fit) {
	case 0:
	case 1:
		e.put(0, len(e.text), fit[0]+" ")
	default:
		at := e.pos
		e.leave("")
		fmt.Fprintf(e.out, "%s\r\n", strings.Join(fit, "  "))
		e.pos = at
	}
}

// leave draws the line with the cursor behind it, then goes to the next row.
func (e *editor) leave(say string) {
	e.search, e.pos = nil, len(e.text)
	e.draw()
	io.WriteString(e.out, say+"\r\n")
	e.afresh()
}

// afresh says that nothing of the line is drawn where the cursor is.
func (e *editor) afresh() { e.top, e.row, e.before, e.broken = 0, 0, 0, false }

// draw shows the line, or what of it there are rows for. Columns are the terminal's to count: the cursor is brought to
// its place by writing what is before it.
func (e *editor) draw() {
	width, height := e.size()
	prompt := e.prompt
	if s := e.search; s != nil {
		prompt = "(search: " + s.text + ") "
		if s.failed {
			prompt = "(not found: " + s.text + ") "
		}
	}
	at := len(e.clusters(e.text[:e.pos]))
	all, row, col := lay(uniseg.StringWidth(prompt), e.clusters(e.text), at, width)
	e.top = max(min(e.top, row), row-height+1, 0)
	end := min(len(all), e.top+height)
	var b strings.Builder
	show := func(row, most int) {
		if row == 0 {
			b.WriteString(prompt)
			most -= uniseg.StringWidth(prompt)
		}
		for _, c := range all[row] {
			if most -= c.width; most < 0 {
				return
			}
			b.WriteString(c.show)
		}
	}
	up := func(rows int) {
		if rows > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", rows)
		}
		b.WriteByte('\r')
	}
	if width != e.width && e.before > 0 { // terminals break a line anew when they become wider or narrower
		if e.row = e.before / width; e.broken {
			e.row = (e.before + width - 1) / width
		}
		e.row = min(e.row, height-1)
	}
	up(e.row)
	b.WriteString("\x1b[J")
	for r := e.top; r < end; r++ {
		if r > 0 && len(all[r]) == 0 {
			b.WriteString("\r\n") // nothing is in it that the terminal would begin it for
		}
		show(r, width)
	}
	up(end - 1 - row)
	show(row, col)
	e.row = row - e.top
	e.width, e.before, e.broken = width, e.row*width+col, row > 0 && len(all[row]) == 0
	io.WriteString(e.out, b.String())
}

// Close leaves the terminal as it is: between lines it is as it was.
func (e *editor) Close() error { return nil }
