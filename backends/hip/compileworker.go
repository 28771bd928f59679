package hip

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/greta-project/greta/internal/child"
)

// AMD's run-time compiler aborts the process where it does not know better. It
// runs in children of their own, one for each compilation under way: one that
// dies is an error of its program. NVIDIA's gives codes and stays in the process.

// order is a compilation that a child is asked for.
type order struct {
	Program string
	Source  []byte // any bytes, a user's too: JSON's strings are of UTF-8 alone
	Options []string
}

// answer is what it gives: code, or an error.
type answer struct {
	Code  []byte
	Error string
}

// compileLimit is how long a compilation may take.
const compileLimit = 5 * time.Minute

// compileWorker compiles in children.
type compileWorker struct {
	command child.Command
	limit   time.Duration

	mu   sync.Mutex
	idle []*server
}

// server is a child that compiles.
type server struct {
	p   *child.Process
	out *json.Encoder
	in  *json.Decoder
}

func (a *compileWorker) take() (*server, error) {
	a.mu.Lock()
	if n := len(a.idle); n > 0 {
		s := a.idle[n-1]
		a.idle = a.idle[:n-1]
		a.mu.Unlock()
		return s, nil
	}
	a.mu.Unlock()
	p, err := child.Start(a.command, a.limit)
	if err != nil {
		return nil, err
	}
	return &server{p, json.NewEncoder(p.In), json.NewDecoder(p.Out)}, nil
}

// compile has a program compiled by a child.
func (a *compileWorker) compile(o order) ([]byte, error) {
	s, err := a.take()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Program, err)
	}
	s.p.Alive()
	var r answer
	err = s.out.Encode(o)
	if err == nil {
		err = s.in.Decode(&r)
	}
	if err != nil {
		babble := !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.EPIPE)
		if babble { // it lives, but what it says is no answer
			s.p.Kill()
		}
		io.Copy(io.Discard, s.p.Out)
		if death := s.p.Wait(); death != nil && !babble {
			err = death
		}
		return nil, fmt.Errorf("%s: the run-time compiler: %w", o.Program, err)
	}
	a.mu.Lock()
	a.idle = append(a.idle, s)
	a.mu.Unlock()
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Code, nil
}

// rest ends the children that wait for work.
func (a *compileWorker) rest() {
	a.mu.Lock()
	idle := a.idle
	a.idle = nil
	a.mu.Unlock()
	for _, s := range idle {
		s.p.In.Close() // it ends by itself
	}
	for _, s := range idle {
		io.Copy(io.Discard, s.p.Out)
		s.p.Wait() // its work is done, however it ends
	}
}

// ServeCompiler is the child's side: it compiles by AMD's run-time compiler what
// it reads, until the end of r. Options.Compiler is a command that calls it.
func ServeCompiler(r io.Reader, w io.Writer) error {
	p, err := load(amd)
	if err != nil {
		return err
	}
	return serveCompiler(&driver{p}, r, w)
}

func serveCompiler(d *driver, r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		code, err := d.compile(o)
		if a.Code = code; err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}
