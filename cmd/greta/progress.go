package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"greta/engine/report"
)

// isTerminal says whether a stream is one that a person looks at.
func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// bar is a progress bar on a terminal. It appears only when the work takes
// noticeable time, and is gone when the work is done.
type bar struct {
	mu    sync.Mutex
	w     io.Writer
	what  string
	start time.Time
	drawn time.Time
}

// newBar gives a bar, or nil where the stream is not a terminal. A nil bar
// can be used and draws nothing.
func newBar(w io.Writer, what string) *bar {
	if !isTerminal(w) {
		return nil
	}
	return &bar{w: w, what: what, start: time.Now()}
}

// set shows how many bytes are done.
func (b *bar) set(done, total int64) {
	b.draw(done, total, fmt.Sprintf("%s of %s", report.Bytes(float64(done)), report.Bytes(float64(total))))
}

// setCount shows what share is done.
func (b *bar) setCount(done, total int64) { b.draw(done, total, "") }

func (b *bar) draw(done, total int64, detail string) {
	if b == nil || total <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.start) < 300*time.Millisecond || now.Sub(b.drawn) < 50*time.Millisecond {
		return
	}
	b.drawn = now
	const width = 30
	n := int(width * min(done, total) / total)
	fmt.Fprintf(b.w, "\r%s [%s%s] %3d %%  %s\x1b[K", b.what, strings.Repeat("=", n), strings.Repeat(" ", width-n), 100*done/total, detail)
}

// clear takes the bar away.
func (b *bar) clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.drawn.IsZero() {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = time.Time{}
	}
}
