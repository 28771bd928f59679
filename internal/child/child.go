// Package child runs a part of the program in a process of its own, under a
// watchdog: what may crash or hang there, such as a driver or its compiler,
// cannot take the program down.
package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Command is a program and its arguments; nil where there is none, and the
// work is done in the process itself.
type Command []string

// Process is a child. It is killed, with all that it started in its group, if it
// shows no sign of life for as long as its limit says.
type Process struct {
	In  io.WriteCloser
	Out io.Reader

	cmd     *exec.Cmd
	limit   time.Duration
	dog     *time.Timer
	said    *ends
	late    atomic.Bool // killed by the watchdog
	killed  atomic.Bool // killed by Kill
	once    sync.Once
	verdict error
}

// Start starts a child. limit is how long it may go on without a call of Alive.
func Start(c Command, limit time.Duration) (*Process, error) {
	if len(c) == 0 {
		return nil, fmt.Errorf("no command for a child process")
	}
	p := &Process{cmd: exec.Command(c[0], c[1:]...), limit: limit, said: &ends{}}
	isolate(p.cmd)
	p.cmd.Stderr = p.said
	p.cmd.WaitDelay = time.Second // a grandchild that holds standard error is not waited for
	var err error
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.Out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("a child process could not be started: %w", err)
	}
	p.dog = time.AfterFunc(limit, func() {
		p.late.Store(true)
		kill(p.cmd)
	})
	return p, nil
}

// Alive says that the child showed a sign of life: its time starts anew.
func (p *Process) Alive() {
	if !p.late.Load() {
		p.dog.Reset(p.limit)
	}
}

// Kill ends the child at once.
func (p *Process) Kill() {
	p.killed.Store(true)
	kill(p.cmd)
}

// Wait waits for the child's end, which must have read to the end of Out. Its
// error is a *Death unless the child ended by itself with code 0.
func (p *Process) Wait() error {
	p.once.Do(func() {
		p.In.Close()
		err := p.cmd.Wait()
		p.dog.Stop()
		if err == nil {
			return
		}
		d := &Death{Late: p.late.Load(), Limit: p.limit, Code: -1, Said: p.said.text()}
		if s := p.cmd.ProcessState; s != nil {
			d.Code, d.How = s.ExitCode(), s.String()
		}
		p.verdict = d
	})
	return p.verdict
}

// Run gives a child its input and returns what it writes.
func Run(ctx context.Context, c Command, in []byte, limit time.Duration) ([]byte, error) {
	p, err := Start(c, limit)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	go func() {
		p.In.Write(in) // an error shows as the child's
		p.In.Close()
	}()
	out, err := io.ReadAll(p.Out)
	if e := p.Wait(); e != nil {
		err = e
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// Death says how a child ended that did not do its work.
type Death struct {
	Late  bool // it was killed as it gave no sign of life
	Limit time.Duration
	Code  int    // of its exit, -1 by a signal
	How   string // "exit status 2", "signal: killed"
	Said  string // on standard error
}

func (d *Death) Error() string {
	text := "the child process ended with " + d.How
	switch {
	case d.Late:
		text = fmt.Sprintf("the child process hung: it was killed after %v", d.Limit)
	case d.Crashed():
		text = "the child process crashed (" + d.How + ")"
	}
	if s := d.summary(); s != "" {
		text += ": " + s
	}
	return text
}

// Crashed says whether a signal or Go's handler of one ended it.
func (d *Death) Crashed() bool {
	return d.Code < 0 || d.Code == 2 && (strings.Contains(d.Said, "\nPC=") || strings.Contains(d.Said, "goroutine "))
}

// summary is what the child said before its stack, on one line.
func (d *Death) summary() string {
	var parts []string
	for line := range strings.Lines(d.Said) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "PC=") || strings.HasPrefix(line, "goroutine ") ||
			strings.HasPrefix(line, "runtime stack:") || len(parts) == 4 {
			break
		}
		if line != "" {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

// ends keeps the beginning and the end of what is written.
type ends struct {
	mu         sync.Mutex
	head, tail []byte
	cut        bool
}

const endBytes = 4 << 10

func (e *ends) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(b)
	if room := endBytes - len(e.head); room > 0 {
		k := min(room, len(b))
		e.head, b = append(e.head, b[:k]...), b[k:]
	}
	e.tail = append(e.tail, b...)
	if over := len(e.tail) - endBytes; over > 0 {
		e.tail, e.cut = append(e.tail[:0], e.tail[over:]...), true
	}
	return n, nil
}

func (e *ends) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	parts := [][]byte{e.head, e.tail}
	if e.cut {
		parts = [][]byte{e.head, []byte("\n[…]\n"), e.tail}
	}
	return string(bytes.Join(parts, nil))
}
