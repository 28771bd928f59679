package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// isTerminal says whether a stream is one that a person looks at.
func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// barAfter is how long work takes before a bar appears.
const barAfter = 300 * time.Millisecond

// bar is a progress bar on a terminal. It appears only when the work takes
// noticeable time, and is gone when the work is done.
type bar struct {
	mu    sync.Mutex
	w     io.Writer
	what  string
	start time.Time
	drawn *mpb.Progress // nil: not yet
	bar   *mpb.Bar
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
func (b *bar) set(done, total int64) { b.draw(done, total, decor.SizeB1000(0)) }

// setCount shows what share is done.
func (b *bar) setCount(done, total int64) { b.draw(done, total, nil) }

func (b *bar) draw(done, total int64, unit any) {
	if b == nil || total <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn == nil {
		if time.Since(b.start) < barAfter {
			return
		}
		right := []decor.Decorator{decor.Percentage(decor.WCSyncSpace)}
		if unit != nil {
			right = append(right, decor.Counters(unit, "  % .1f of % .1f"))
		}
		b.drawn = mpb.New(mpb.WithOutput(b.w), mpb.WithWidth(40), mpb.WithAutoRefresh())
		b.bar = b.drawn.AddBar(total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(b.what)),
			mpb.AppendDecorators(right...))
	}
	b.bar.SetTotal(total, false)
	b.bar.SetCurrent(min(done, total))
}

// clear takes the bar away.
func (b *bar) clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn != nil {
		b.bar.Abort(true)
		b.drawn.Wait()
		b.drawn, b.bar, b.start = nil, nil, time.Now()
	}
}
