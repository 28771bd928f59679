package serve

import (
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineWriter notes the deadlines of its writes.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.set = append(w.set, t)
	return nil
}

// TestWriteDeadline: a reader has its time after each event, for which the deadline is not set each time.
func TestWriteDeadline(t *testing.T) {
	const wait = 400 * time.Millisecond
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	s := &Server{opt: Options{WriteWait: wait}}
	e := s.newSSE(w)
	begin, events := time.Now(), 0
	for ; time.Since(begin) < 3*wait/2; events++ {
		before := time.Now()
		if err := e.event("", events); err != nil {
			t.Fatal(err)
		}
		if err := e.flush(); err != nil {
			t.Fatal(err)
		}
		last := w.set[len(w.set)-1]
		if last.Before(before.Add(wait)) || last.After(time.Now().Add(wait+wait/8)) {
			t.Fatalf("at the event %d the reader has %v", events, last.Sub(before))
		}
		time.Sleep(time.Millisecond)
	}
	if n := len(w.set); n < 2 || n > 14 || n > events/2 {
		t.Errorf("the deadline is set %d times for %d events", n, events)
	}
}
