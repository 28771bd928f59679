package profile

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxSizes bounds a list, so that a slip of the pen does not measure for a week.
const maxSizes = 4096

// SizeError says what is wrong with a list of sizes, and where.
type SizeError struct {
	Text   string
	Column int // from 1
	Msg    string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%q, column %d: %s", e.Text, e.Column, e.Msg)
}

// Sizes reads a list of whole numbers:
//
//	list = item {"," item}
//	item = number | number ".." number ["+" number | "*" number]
//
// 1,8,512 are three sizes; 4096..16384*2 are 4096, 8192, 16384; 64..256+64 are 64,
// 128, 192, 256; 1..4 are 1, 2, 3, 4. The last number of a range is taken only where
// the steps meet it. A hyphen may stand for the two dots, as in llama-bench.
// Sizes come in the order written; one that comes twice stays once, but counts
// twice against the most that a list may have.
func Sizes(text string) ([]int, error) {
	p := &sizes{text: text}
	for {
		if err := p.item(); err != nil {
			return nil, err
		}
		p.space()
		if p.at == len(text) {
			return p.list, nil
		}
		if text[p.at] != ',' {
			return nil, p.fail("a comma is expected, not %q", rest(text[p.at:]))
		}
		p.at++
	}
}

func rest(s string) string {
	if len(s) > 12 {
		return s[:12] + "…"
	}
	return s
}

type sizes struct {
	text  string
	at    int
	list  []int
	taken int // sizes, with those that came before
}

func (p *sizes) fail(format string, args ...any) error {
	return &SizeError{p.text, p.at + 1, fmt.Sprintf(format, args...)}
}

func (p *sizes) space() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

// skip takes a word where it stands.
func (p *sizes) skip(word string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], word) {
		return false
	}
	p.at += len(word)
	return true
}

func (p *sizes) number() (int, error) {
	p.space()
	n, start := 0, p.at
	for ; p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9'; p.at++ {
		if n = n*10 + int(p.text[p.at]-'0'); n > math.MaxInt32 {
			p.at = start
			return 0, p.fail("sizes are below 2^31")
		}
	}
	switch {
	case p.at > start:
		return n, nil
	case p.at == len(p.text):
		return 0, p.fail("a number is expected at the end")
	}
	return 0, p.fail("a number is expected, not %q", rest(p.text[p.at:]))
}

func (p *sizes) add(n int) error {
	if p.taken++; p.taken > maxSizes {
		return p.fail("more than %d sizes", maxSizes)
	}
	if !slices.Contains(p.list, n) {
		p.list = append(p.list, n)
	}
	return nil
}

func (p *sizes) item() error {
	low, err := p.number()
	if err != nil {
		return err
	}
	if !p.skip("..") && !p.skip("-") {
		return p.add(low)
	}
	p.space()
	start := p.at
	high, err := p.number()
	if err != nil {
		return err
	}
	if high < low {
		p.at = start
		return p.fail("the range from %d ends below its start, at %d", low, high)
	}
	step, factor := 1, 1
	switch {
	case p.skip("*"):
		start = p.at
		if factor, err = p.number(); err == nil && (factor < 2 || low == 0) {
			p.at = start
			return p.fail("a range grows by a factor of 2 or more, from a size above 0")
		}
		step = 0
	case p.skip("+"):
		start = p.at
		if step, err = p.number(); err == nil && step == 0 {
			p.at = start
			return p.fail("a range with steps of 0 never ends")
		}
	}
	for n := low; err == nil && n <= high; n = n*factor + step {
		err = p.add(n)
	}
	return err
}
