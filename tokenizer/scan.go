// Hand-written scanners for the patterns that most vocabularies split text by.
// Each equals its regular expression (pretok.go), which a test compares.

package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// class is what the patterns ask of a character.
type class uint8

const (
	other   class = iota
	letter        // \p{L}
	number        // \p{N}
	blank         // \s but for line ends
	newline       // \r \n
)

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

func classify(r rune) class {
	switch {
	case r == '\n' || r == '\r':
		return newline
	case unicode.IsSpace(r):
		return blank
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case letterSince15(r):
		return letter
	case numberSince15(r):
		return number
	}
	return other
}

// classAt gives the class and size of the character at i; size 0 at the end.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return other, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classify(r), n
}

// runOf gives the end of the characters of class c from i on.
func runOf(s string, i int, c class) int {
	for {
		k, n := classAt(s, i)
		if n == 0 || k != c {
			return i
		}
		i += n
	}
}

// spaces gives the end of the whitespace at i, the start of its last
// character, and the end of its last line end (i where it has none).
func spaces(s string, i int) (end, last, line int) {
	end, last, line = i, i, i
	for {
		k, n := classAt(s, end)
		if n == 0 || k != blank && k != newline {
			return end, last, line
		}
		last, end = end, end+n
		if k == newline {
			line = end
		}
	}
}

// contraction gives the length of 's 't 're 've 'm 'll 'd at i, or 0.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return 0
	}
	at := func(j int) byte {
		if j >= len(s) {
			return 0
		}
		if fold && 'A' <= s[j] && s[j] <= 'Z' {
			return s[j] + 'a' - 'A'
		}
		return s[j]
	}
	switch a, b := at(i+1), at(i+2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// scanGPT2 splits by patternGPT2.
func scanGPT2(s string, emit func(string) error) error {
	for i := 0; i < len(s); {
		end := i + contraction(s, i, false)
		if end == i {
			end = gpt2Word(s, i)
		}
		if err := emit(s[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
}

func gpt2Word(s string, i int) int {
	start := i
	if s[i] == ' ' {
		start++
	}
	if k, n := classAt(s, start); n > 0 && k <= number {
		return runOf(s, start, k)
	}
	return spaceWord(s, i)
}

// spaceWord is \s+(?!\S)|\s+: whitespace, without its last character where
// something follows, unless that is all there is.
func spaceWord(s string, i int) int {
	end, last, _ := spaces(s, i)
	if end < len(s) && last > i {
		return last
	}
	return end
}

// contractionRule says which contractions are part of the pattern.
type contractionRule uint8

const (
	noContractions    contractionRule = iota
	shortContractions                 // in ASCII's upper and lower case
	longContractions                  // and with ſ, which is an s without case
)

// scanLlama3 splits by patternLlama3 with at most digits digits together.
func scanLlama3(digits int, rule contractionRule) splitFunc {
	return func(s string, emit func(string) error) error {
		for i := 0; i < len(s); {
			end := i
			if rule != noContractions {
				end += contraction(s, i, true)
			}
			if rule == longContractions && strings.HasPrefix(s[i:], "'ſ") {
				end = i + len("'ſ")
			}
			if end == i {
				end = llama3Word(s, i, digits)
			}
			if err := emit(s[i:end]); err != nil {
				return err
			}
			i = end
		}
		return nil
	}
}

func llama3Word(s string, i, digits int) int {
	k, n := classAt(s, i)
	next, nn := classAt(s, i+n)
	switch {
	case k == letter:
		return runOf(s, i, letter)
	case k != newline && k != number && nn > 0 && next == letter: // [^\r\n\p{L}\p{N}]?\p{L}+
		return runOf(s, i+n, letter)
	case k == number:
		for end := i; ; digits-- {
			k, n := classAt(s, end)
			if n == 0 || k != number || digits == 0 {
				return end
			}
			end += n
		}
	}
	start := i
	if s[i] == ' ' && nn > 0 && next == other {
		start, k = i+1, other
	}
	if k == other { //  ?[^\s\p{L}\p{N}]+[\r\n]*
		return runOf(s, runOf(s, start, other), newline)
	}
	if _, _, line := spaces(s, i); line > i { // \s*[\r\n]+
		return line
	}
	return spaceWord(s, i)
}

// scanNumbers isolates each \p{N}; what lies between stays whole.
func scanNumbers(s string, emit func(string) error) error { return scanEach(s, isNumber, true, emit) }

func isNumber(r rune) bool { return classify(r) == number }

// scanDigits isolates what Rust calls numeric, which is Unicode 17's numbers: each, or those together that stand
// together.
func scanDigits(each bool) splitFunc {
	return func(s string, emit func(string) error) error {
		return scanEach(s, func(r rune) bool {
			return isNumber(r) || 0x11DE0 <= r && r <= 0x11DE9 || 0x16FF4 <= r && r <= 0x16FF6
		}, each, emit)
	}
}

// scanEach isolates the characters that are in, each or together.
func scanEach(s string, in func(rune) bool, each bool, emit func(string) error) error {
	start, inside := 0, false
	for i := 0; i < len(s); {
		r, n := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
		}
		is := in(r)
		if start < i && (is != inside || is && each) {
			if err := emit(s[start:i]); err != nil {
				return err
			}
			start = i
		}
		inside = is
		i += n
	}
	if start < len(s) {
		return emit(s[start:])
	}
	return nil
}
