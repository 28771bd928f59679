package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// typed gives the lines that keys make of an editor, what it drew, and its error.
func typed(t *testing.T, in io.Reader, historyFile string) (lines []string, screen string, err error) {
	t.Helper()
	var out strings.Builder
	e := &editor{ctx: context.Background(), in: in, out: &out, got: make(chan chunk, 1),
		raw:  func() (func(), error) { return func() {}, nil },
		size: func() (int, int) { return 20, 5 }}
	e.history.open(historyFile)
	for {
		line, err := e.next(false)
		if err != nil {
			return lines, out.String(), err
		}
		lines = append(lines, line)
	}
}

// Keys change a line by what is seen as one character, however the bytes are cut.
func TestEditorKeys(t *testing.T) {
	const left, right, del, bs = "\x1b[D", "\x1b[C", "\x1b[3~", "\x7f"
	for in, want := range map[string]string{
		"abc" + left + left + "X\r":                                "aXbc",
		"ne\u0301x" + left + bs + "\r":                             "nx",
		"ne\u0301x" + left + left + del + "\r":                     "nx",
		"ab" + left + "\u0301\r":                                   "a\u0301b",
		"日本語" + left + left + "中" + del + "\r":                     "日中語",
		"👨‍👩‍👧!" + left + left + del + "\r":                        "!",
		"🇩🇪🇫🇷" + left + bs + "\r":                                  "🇫🇷",
		"각\u1100\u1161" + bs + "\r":                                "각",
		"\u0301a" + left + left + "b\r":                            "b\u0301a",
		"one two  three\x1bb\x1bbX\r":                              "one Xtwo  three",
		"one two" + "\x1b[1;5D\x1b[1;5DY\x1b[1;5CZ\r":              "YoneZ two",
		"one two three\x17\x17.\r":                                 "one .",
		"one two\x01\x0b\x19\x19\r":                                "one twoone two",
		"one two" + left + left + left + "\x15\x05\x19\r":          "twoone ",
		"abc" + left + "\x14\r":                                    "acb",
		"ab\x01\x1b[1~c\x1b[4~d\x1bOHe\x1bOFf\r":                   "ecabdf",
		"a\x02b\x06c\r":                                            "bac",
		"a\x1b[20;5~\x1b[Zb\x00\x1b\x1b[Dc\r":                      "acb",
		"a\xffb\xc3\r":                                             "ab",
		"/th\t\r":                                                  "/thoughts ",
		"/s\t\r":                                                   "/s",
		"x/th\t\r":                                                 "x/th",
		pasteBegin + "one\r\ntwo\rthree\n" + pasteEnd + "\r":       "one\ntwo\nthree",
		"a" + pasteBegin + "\tx\x07\x1b[31mé" + pasteEnd + "b\r":   "a\tx[31méb",
		pasteBegin + pasteBegin + "x" + pasteEnd + pasteEnd + "\r": "[200~x",
		pasteBegin + "a\nb" + pasteEnd + left + left + bs + "\r":   "\nb",
		pasteBegin + strings.Repeat("日本 line\r\n", 300) + "x" + pasteEnd + left + "a\r": "a" +
			strings.Repeat("日本 line\n", 300) + "x",
		pasteBegin + strings.Repeat("x", 600) + pasteEnd + bs + "y\r": "y",
		"\U00100000y\r": "y", // no name of a paste can be typed
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in),
			"bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in))} {
			got, _, err := typed(t, r, "")
			if len(got) != 1 || got[0] != want || err != io.EOF {
				t.Errorf("%s %q: %q %v, want %q", name, in, got, err, want)
			}
		}
	}
	for in, want := range map[string]error{"a\x04\x03": errInterrupt, "\x04x": io.EOF, "a\x15\x04": io.EOF,
		pasteBegin + "lost\rpaste\x03": errInterrupt, "abc": io.EOF} {
		if got, _, err := typed(t, strings.NewReader(in), ""); len(got) != 0 || !errors.Is(err, want) {
			t.Errorf("%q: %q %v, want %v", in, got, err, want)
		}
	}
}

// Lines typed before come again, also in the next conversation, and are searched.
func TestEditorHistory(t *testing.T) {
	const up, down = "\x1b[A", "\x1b[B"
	file := filepath.Join(t.TempDir(), "history")
	got, _, _ := typed(t, strings.NewReader("first\rsecond\rsecond\r \rdraft"+up+up+down+down+"!\r"+
		pasteBegin+"of\ttwo\nlines"+pasteEnd+"\r"), file)
	if fmt.Sprintf("%q", got) != `["first" "second" "second" " " "draft!" "of\ttwo\nlines"]` {
		t.Errorf("%q", got)
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != "first\nsecond\ndraft!\nof␉two␤lines\n" {
		t.Errorf("%q %v", data, err)
	}
	for in, want := range map[string]string{up + "\r": "of\ttwo\nlines", up + up + up + up + up + up + "\r": "first",
		"\x12SEC\r": "second", "\x12s\x12\x12\r": "first", "\x12xyz\x7f\x7f\x7ffir\x05!\r": "first!",
		"draft\x12fir\x07.\r": "draft.", "kept\x12QX\r": "kept"} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := typed(t, strings.NewReader(in), file); len(got) != 1 || got[0] != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("x\ny\n", 600)
	if err := os.WriteFile(file, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	typed(t, strings.NewReader("z\r"), file)
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "\n") != mostHistory+1 {
		t.Errorf("%d lines are left, %v", strings.Count(string(data), "\n"), err)
	}
}

// A window that becomes wider or narrower breaks the line anew: what was drawn is drawn over, and nothing above it.
func TestEditorResized(t *testing.T) {
	for _, c := range []struct {
		text         string // behind a prompt of 4 columns
		pos, was, is int
		up           string
	}{
		{strings.Repeat("x", 30), 30, 20, 10, "\x1b[3A"}, {strings.Repeat("x", 30), 30, 20, 60, ""},
		{strings.Repeat("x", 30), 30, 20, 20, "\x1b[1A"}, {strings.Repeat("x", 36), 36, 20, 15, "\x1b[3A"},
		{strings.Repeat("x", 36), 36, 20, 60, "\x1b[1A"}, {strings.Repeat("x", 30), 1, 20, 4, "\x1b[1A"},
		{strings.Repeat("x", 30), 1, 20, 10, ""}, {strings.Repeat("x", 96), 95, 20, 8, "\x1b[5A"},
	} {
		var out strings.Builder
		width := c.was
		e := &editor{out: &out, size: func() (int, int) { return width, 6 }, prompt: ">>> "}
		e.put(0, 0, c.text)
		e.pos = c.pos
		e.draw()
		out.Reset()
		width = c.is
		e.draw()
		if want := c.up + "\r\x1b[J>>> "; c.pos < 40 && !strings.HasPrefix(out.String(), want) ||
			!strings.HasPrefix(out.String(), c.up+"\r\x1b[J") {
			t.Errorf("%d at %d, %d columns and then %d: %q, not %q", len(c.text), c.pos, c.was, c.is, out.String(), want)
		}
	}
}

// Rows break where the terminal breaks them, wide characters whole; the cursor is never beyond the last column.
func TestEditorRows(t *testing.T) {
	var l line
	for _, c := range []struct {
		text     string
		at       int
		rows     string
		row, col int
	}{
		{"", 0, "", 0, 4}, {"abc", 1, "abc", 0, 5}, {"abcdef", 6, "abcdef|", 1, 0}, {"abcdef", 5, "abcdef", 0, 9},
		{"abcdefg", 6, "abcdef|g", 1, 0}, {"abcde日", 5, "abcde |日", 1, 0}, {"日本語日", 4, "日本語|日", 1, 2},
		{"e\u0301\n", 2, "e\u0301␤", 0, 6},
	} {
		all, row, col := lay(4, l.clusters(c.text), c.at, 10)
		var shown []string
		for _, r := range all {
			text := ""
			for _, x := range r {
				text += x.show
			}
			shown = append(shown, text)
		}
		if got := strings.Join(shown, "|"); got != c.rows || row != c.row || col != c.col {
			t.Errorf("%q at %d: %q %d %d, want %q %d %d", c.text, c.at, got, row, col, c.rows, c.row, c.col)
		}
	}
	long := pasteBegin + strings.Repeat("x", 600) + pasteEnd
	if _, screen, _ := typed(t, strings.NewReader(long+"\r"), ""); !strings.Contains(screen, "[paste 1: 1 lines, 6") {
		t.Errorf("%q", screen)
	}
	if _, screen, _ := typed(t, strings.NewReader(strings.Repeat("0123456789", 30)), ""); strings.Contains(screen,
		"\x1b[5A") {
		t.Errorf("the cursor goes up beyond a window of 5 rows: %q", screen)
	}
}
