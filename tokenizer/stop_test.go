package tokenizer

import "testing"

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		want   string
		hit    bool
	}{
		{nil, []string{"ab", "c"}, "abc", false},
		{[]string{"\n\n"}, []string{"a\n", "b\n", "\nc"}, "a\nb", true},
		{[]string{"END"}, []string{"xE", "N", "Dy"}, "x", true},
		{[]string{"END"}, []string{"xE", "N", "E", "ND"}, "xEN", true},
		{[]string{"END"}, []string{"xE", "N"}, "xEN", false},
		{[]string{"bc", "b"}, []string{"abc"}, "a", true},
		{[]string{"aab"}, []string{"a", "a", "a", "b"}, "a", true},
		{[]string{"zz", "yy"}, []string{"yzyy"}, "yz", true},
	} {
		s := NewStopper(c.stops)
		got, hit := "", false
		for _, p := range c.pieces {
			show, stop := s.Push(p)
			got += show
			if hit = stop != ""; hit {
				break
			}
		}
		if !hit {
			got += s.Flush()
		}
		if got != c.want || hit != c.hit {
			t.Errorf("stops %q, pieces %q: %q %v, want %q %v", c.stops, c.pieces, got, hit, c.want, c.hit)
		}
	}
}

// What cannot become a stop string is shown at once.
func TestStopperHoldsNoMoreThanNeeded(t *testing.T) {
	s := NewStopper([]string{"END"})
	if show, _ := s.Push("hello E"); show != "hello " {
		t.Errorf("shown %q", show)
	}
	if show, _ := s.Push("X"); show != "EX" {
		t.Errorf("shown %q", show)
	}
}
