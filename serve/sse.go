// Streams of events, as browsers' EventSource and the official clients read them.

package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// sse writes events. The status is sent with the first, so that an error before it has its own.
type sse struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	buf   *bufio.Writer
	json  *json.Encoder
	line  bytes.Buffer
	wait  time.Duration
	until time.Time // the deadline of writes that was set
	begun bool
}

func (s *Server) newSSE(w http.ResponseWriter) *sse {
	e := &sse{w: w, ctl: http.NewResponseController(w), wait: s.opt.WriteWait}
	e.buf = bufio.NewWriterSize(w, 4<<10)
	e.json = json.NewEncoder(&e.line)
	e.json.SetEscapeHTML(false)
	return e
}

func (e *sse) begin() {
	if e.begun {
		return
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx hands it on at once
	e.deadline()
	e.w.WriteHeader(200)
}

// deadline gives a reader some time from now on, and up to an eighth more, so that it is not set for each token.
// Writers that know none are those of tests.
func (e *sse) deadline() {
	if now := time.Now(); now.Add(e.wait).After(e.until) {
		e.until = now.Add(e.wait + e.wait/8)
		_ = e.ctl.SetWriteDeadline(e.until)
	}
}

// event writes one event; name may be empty.
func (e *sse) event(name string, v any) error {
	e.begin()
	e.line.Reset()
	if err := e.json.Encode(v); err != nil { // ends with a newline
		return err
	}
	if name != "" {
		e.buf.WriteString("event: ")
		e.buf.WriteString(name)
		e.buf.WriteByte('\n')
	}
	e.buf.WriteString("data: ")
	e.buf.Write(e.line.Bytes())
	return e.buf.WriteByte('\n')
}

// done writes the end that OpenAI's clients wait for.
func (e *sse) done() error {
	e.begin()
	e.buf.WriteString("data: [DONE]\n\n")
	return e.flush()
}

// flush sends what was written.
func (e *sse) flush() error {
	e.deadline()
	if err := e.buf.Flush(); err != nil {
		return err
	}
	return e.ctl.Flush()
}
