// Stop strings: where a text ends before its last token.

package tokenizer

import "strings"

// NewStopper looks for these strings, none of which is empty.
func NewStopper(stops []string) *Stopper { return &Stopper{stops: stops} }

// Stopper passes text on until one of the stop strings appears. What may be
// the beginning of one is held back until it is known.
type Stopper struct {
	stops []string
	held  string
}

// Push takes more text. It gives what can be shown, and the stop string that ended
// the text, if one did; the string itself and what follows is not shown.
func (s *Stopper) Push(text string) (show, hit string) {
	if len(s.stops) == 0 {
		return text, ""
	}
	s.held += text
	at := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (at < 0 || i < at) {
			at, hit = i, stop
		}
	}
	if at >= 0 {
		show, s.held = s.held[:at], ""
		return show, hit
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
			}
		}
	}
	show, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return show, ""
}

// Flush gives what was held back, at the end of the text.
func (s *Stopper) Flush() string {
	show := s.held
	s.held = ""
	return show
}
