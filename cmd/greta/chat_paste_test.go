package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What is pasted comes as one line, however the bytes are cut; keys pass as they are.
func TestPasteReader(t *testing.T) {
	for in, want := range map[string]string{
		"ab\x1b[A\r": "ab\x1b[A\r",
		"\x1b[200~one\r\ntwo\rthree\n\x1b[201~\r":    "one␤two␤three␤\r",
		"a\x1b[200~\tx\x07\x1b[31mé\x1b[201~\tb\r":   "a␉x[31mé\tb\r",
		"\x1b[200~\x1b[200~x\x1b[201~\x1b[201~":      "[200~x\x1b[201~",
		"\x1b[200~lost\rpaste\x03x\r":                "\x03x\r",
		"a\x1b[1~b\x1b[7~c\x1b[4~d\x1b[8~e\x1b[3~":   "a\x01b\x01c\x05d\x05e\x1b[3~",
		"\x1b[1;5D\x1b[1":                            "\x1b[1;5D\x1b[1",
		"\x1b[200~\x1b[1~\x1b[201~":                  "[1~",
		"\x1b":                                       "\x1b",
		"\x1b[20":                                    "\x1b[20",
		"\x1b[20~\x1b[200":                           "\x1b[20~\x1b[200",
		"\x1b[200~\n\n\x1b[201~\x1b[200~\n\x1b[201~": "␤␤␤",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in),
			"bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in))} {
			got, err := io.ReadAll(&pasteReader{ReadCloser: io.NopCloser(r)})
			if string(got) != want || err != nil {
				t.Errorf("%s %q: %q %v, want %q", name, in, got, err, want)
			}
		}
	}
}

// A long paste stands in the line by its name.
func TestLongPaste(t *testing.T) {
	text := strings.Repeat("日本 line\r\n", 300)
	p := &pasteReader{ReadCloser: io.NopCloser(iotest.HalfReader(strings.NewReader(
		"say " + pasteBegin + text + pasteEnd + "and " + pasteBegin + text + "x" + pasteEnd)))}
	got, err := io.ReadAll(p)
	want := "say [paste 1: 300 lines, 2400 characters]and [paste 2: 301 lines, 2401 characters]"
	if string(got) != want || err != nil {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	unix := strings.ReplaceAll(text, "\r", "")
	if whole := pastedSigns.Replace(p.whole(want)); whole != "say "+unix+"and "+unix+"x" {
		t.Errorf("%q", whole)
	}
}
