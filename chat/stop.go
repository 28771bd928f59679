package chat

import "strings"

// stopper passes text on until one of the stop texts appears. What may be the beginning of one is held back.
type stopper struct {
	stops []string
	held  string
}

// push takes more text. It gives what can be shown, and whether a stop text has ended the answer.
func (s *stopper) push(text string) (show string, stopped bool) {
	s.held += text
	at := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); stop != "" && i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at >= 0 {
		show, s.held = s.held[:at], ""
		return show, true
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
	return show, false
}

func (s *stopper) flush() string {
	show := s.held
	s.held = ""
	return show
}
