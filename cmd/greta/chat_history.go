package main

import (
	"bufio"
	"os"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
)

// mostHistory is how many lines of a conversation's history are kept.
const mostHistory = 500

// history is what was typed before. In its file a line is one, whose own ends and tabs are signs.
type history struct {
	path  string // "": nowhere
	lines []string
	at    int    // the line that is shown, len(lines): none of these
	draft string // what was typed before another was shown
}

var (
	toSigns   = strings.NewReplacer("\n", "␤", "\t", "␉")
	fromSigns = strings.NewReplacer("␤", "\n", "␉", "\t")
)

// open reads the file of lines typed before; one that cannot be read takes nothing from the conversation.
func (h *history) open(path string) {
	h.path = path
	if path == "" {
		return
	}
	f, err := plainfile.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		h.lines = append(h.lines, fromSigns.Replace(s.Text()))
	}
	if n := len(h.lines); n > mostHistory {
		h.lines = h.lines[n-mostHistory:]
		if s.Err() == nil && n > 2*mostHistory {
			h.write(os.O_TRUNC, h.lines...)
		}
	}
}

// write writes lines to the file; one that cannot be written takes nothing from the conversation.
func (h *history) write(flag int, lines ...string) {
	if plainfile.Check(h.path) != nil { // a pipe would wait
		return
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|flag, 0o600)
	if err != nil {
		return
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(toSigns.Replace(line) + "\n")
	}
	_, _ = f.WriteString(b.String())
	_ = f.Close()
}

// begin forgets which line was shown.
func (h *history) begin() { h.at, h.draft = len(h.lines), "" }

// add keeps a line, unless it is empty or the last again.
func (h *history) add(line string) {
	if n := len(h.lines); strings.TrimSpace(line) == "" || n > 0 && h.lines[n-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.path != "" {
		h.write(os.O_APPEND, line)
	}
}

// move gives the line that is so many before the one shown, which now says shown.
func (h *history) move(back int, shown string) (string, bool) {
	to := h.at - back
	if to < 0 || to > len(h.lines) {
		return "", false
	}
	if h.at == len(h.lines) {
		h.draft = shown
	}
	if h.at = to; to == len(h.lines) {
		return h.draft, true
	}
	return h.lines[to], true
}

// find gives the last line before that has the text, in small letters or large; -1: none has.
func (h *history) find(text string, before int) int {
	for i := before - 1; i >= 0; i-- {
		if strings.Contains(strings.ToLower(h.lines[i]), strings.ToLower(text)) {
			return i
		}
	}
	return -1
}
