package bridge

// The server: reads requests, runs each in a goroutine of its own, answers as they end.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
)

// Options say what the server serves.
type Options struct {
	Version string // of greta
	// Load loads a model with options that have the names of greta run's flags; notify is told what the user should know.
	Load func(ctx context.Context, path string, options map[string]json.RawMessage) (Model, error)
	// Command runs one of greta's verbs in this process and gives its standard output.
	Command func(ctx context.Context, args []string) ([]byte, error)
	// Code is the class of an error: usage, device, mismatch, memory, noisy; "": it is just a failure.
	Code func(error) string
	// Log is told what belongs to no request.
	Log *log.Logger
	// Grace is how long requests may take to end when the stream has ended; 0: two seconds.
	Grace time.Duration
	// Orphaned says whether the process that asked is gone; nil: the end of the stream says that alone.
	Orphaned func() bool
}

// Codes of errors beside those of Options.Code.
const (
	codeUsage       = "usage"
	codeVersion     = "version"
	codeProtocol    = "protocol"
	codeCanceled    = "canceled"
	codeUnsupported = "unsupported"
	codeInternal    = "internal"
	codeFailed      = "failed"
	codeBusy        = "busy"
)

// Error is an error with its class, as the other side gets it.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// In line it would be a tenth of a percent of the binary.
//
//go:noinline
func usagef(form string, args ...any) error { return &Error{codeUsage, fmt.Sprintf(form, args...)} }

// mostRequests is how many requests may be under way at once.
const mostRequests = 4096

// server is one connection.
type server struct {
	opt    Options
	out    writer
	shares bool // results may lie in shared memory
	files  *descriptors

	requests sync.WaitGroup
	idle     chan job      // to a goroutine that waits for a request
	waiting  chan struct{} // one for each of those
	ended    chan struct{} // closed when no more come
	unshared sync.Once

	mu       sync.Mutex
	lastID   uint64
	running  map[uint64]context.CancelFunc // by the request's id
	models   map[uint64]*loaded
	sessions map[uint64]*session
	leases   map[uint64]func()
	attached map[uint64]*attachment
}

// message is the header of a request.
type message struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
}

// answer is the header of what is sent: of a request's parts (Event), its end (OK or Error).
type answer struct {
	ID    uint64 `json:"id"`
	Event any    `json:"event,omitempty"`
	OK    any    `json:"ok,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// hello begins a connection, and answers that.
type hello struct {
	Protocol int    `json:"protocol"`
	Client   string `json:"client,omitempty"` // who asks, for people
	// Shared says that the client can map shared memory of this kind.
	Shared string `json:"shared,omitempty"`
	// Descriptors is the number, among greta's open files, of a socket by which the client sends descriptors; greta
	// answers with it where it takes them.
	Descriptors int      `json:"descriptors,omitempty"`
	Greta       string   `json:"greta,omitempty"`
	PID         int      `json:"pid,omitempty"`
	Ops         []string `json:"ops,omitempty"`
}

// request is one that is under way.
type request struct {
	s       *server
	id      uint64
	args    json.RawMessage
	payload []byte
	model   *loaded        // that it names, as it was when the request came; nil: none
	files   map[uint64]int // descriptors that it names, by their numbers
}

// ok ends a request.
func (q *request) ok(result any, payload []byte) error {
	if result == nil {
		result = struct{}{}
	}
	return q.s.answer(answer{ID: q.id, OK: result}, payload)
}

// event is a part of a request's answer.
func (q *request) event(part any) error { return q.s.answer(answer{ID: q.id, Event: part}, nil) }

func (s *server) answer(a answer, payload []byte) error {
	header, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.out.write(header, payload)
}

// fail ends a request with an error.
func (s *server) fail(id uint64, err error) {
	_ = s.answer(answer{ID: id, Error: s.describe(err)}, nil) // the stream's error ends the server by itself
}

// describe finds an error's class.
func (s *server) describe(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{e.Code, strings.TrimSpace(err.Error())}
	}
	code := codeFailed
	if errors.Is(err, context.Canceled) {
		code = codeCanceled
	} else if c := class(err); c != "" {
		code = c
	} else if s.opt.Code != nil {
		if c := s.opt.Code(err); c != "" {
			code = c
		}
	}
	return &Error{code, strings.TrimSpace(err.Error())}
}

// operation is what a request asks for; it ends the request itself where it gives no error.
type operation func(s *server, ctx context.Context, q *request) error

// operations by name. hello, cancel, release and forget have no place here: they are answered by the reader itself.
var operations = map[string]operation{
	"ping":         func(_ *server, _ context.Context, q *request) error { return q.ok(nil, nil) },
	"load":         (*server).load,
	"close":        (*server).unload,
	"generate":     (*server).generate,
	"tokenize":     (*server).tokenize,
	"detokenize":   (*server).detokenize,
	"chat":         (*server).chat,
	"logits":       (*server).logits,
	"embed":        (*server).embed,
	"check":        (*server).check,
	"plan":         (*server).plan,
	"bench":        (*server).bench,
	"command":      (*server).command,
	"open-session": (*server).openSession,
	"run-session":  (*server).runSession,
	"rewind":       (*server).rewind,
	"end-session":  (*server).endSession,
	"attach":       (*server).attach,
	"detach":       (*server).detachOp,
}

func operationNames() []string {
	names := []string{"hello", "cancel", "release", "forget"}
	for name := range operations {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Serve answers requests of in until it ends or ctx does. What is under way then is cancelled, and
// the models are closed. Its error says that the stream was none of frames of this version, or
// broke off.
func Serve(ctx context.Context, in io.Reader, out io.Writer, opt Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if opt.Log == nil {
		opt.Log = log.New(io.Discard, "", 0)
	}
	s := &server{opt: opt, running: map[uint64]context.CancelFunc{}, models: map[uint64]*loaded{},
		sessions: map[uint64]*session{}, leases: map[uint64]func(){}, attached: map[uint64]*attachment{},
		idle: make(chan job), waiting: make(chan struct{}, mostIdle), ended: make(chan struct{})}
	defer close(s.ended)
	in = bufio.NewReaderSize(in, 64<<10) // a small request comes by one call of the system
	s.out = writer{w: out, failed: func(err error) { cancel(err) }}
	if err := s.greet(in); err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() { read <- s.read(ctx, in) }()
	if opt.Orphaned != nil {
		go watch(ctx, opt.Orphaned, cancel)
	}
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
		if e := context.Cause(ctx); !errors.Is(e, context.Canceled) && !errors.Is(e, errOrphaned) {
			err = e
		}
	}
	cancel(nil)
	defer s.files.close()
	return errlist.Join(err, s.end())
}

var errOrphaned = errors.New("the process that asked is gone")

// watch ends the server where the process that started it has ended though the stream has not: a process that it had
// forked holds that open.
func watch(ctx context.Context, orphaned func() bool, cancel context.CancelCauseFunc) {
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if orphaned() {
				cancel(errOrphaned)
				return
			}
		}
	}
}

// greet reads the first frame, which says who asks and in which version.
func (s *server) greet(in io.Reader) error {
	f, err := readFrame(in)
	if errors.Is(err, io.EOF) {
		return nil // nobody asks
	}
	var m message
	var h hello
	if err == nil {
		if err = json.Unmarshal(f.header, &m); err == nil && m.Op != "hello" {
			err = fmt.Errorf("the first request is %q, expected is hello with the protocol's version", m.Op)
		}
		if err == nil {
			err = json.Unmarshal(m.Args, &h)
		}
	}
	own := hello{Protocol: Protocol, Greta: s.opt.Version, PID: os.Getpid(), Shared: sharing}
	switch {
	case err != nil:
		err = &Error{codeProtocol, fmt.Sprintf("greta pipe: %v; it speaks version %d of its protocol (docs/pipe.md)", err,
			Protocol)}
	case h.Protocol != Protocol:
		err = &Error{codeVersion, fmt.Sprintf("the client %s speaks version %d of the protocol, greta %s version %d: "+
			"install a client and a greta of the same release", h.Client, h.Protocol, s.opt.Version, Protocol)}
	case h.Descriptors != 0:
		if s.files, err = takeDescriptors(h.Descriptors); err != nil {
			err = usagef("hello: %v", err)
		} else if s.files != nil {
			own.Descriptors = h.Descriptors
		}
	}
	if err != nil {
		s.fail(m.ID, err)
		return err
	}
	own.Ops = operationNames()
	s.shares = sharing != "" && h.Shared == sharing
	return s.answer(answer{ID: m.ID, OK: own}, nil)
}

// read takes requests until the stream ends.
func (s *server) read(ctx context.Context, in io.Reader) error {
	for {
		f, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			err = &Error{codeProtocol, "greta pipe: " + err.Error()}
			s.fail(0, err)
			return err
		}
		var m message
		if err := json.Unmarshal(f.header, &m); err != nil {
			err = &Error{codeProtocol, fmt.Sprintf("greta pipe: a frame's header is no request: %v", err)}
			s.fail(0, err)
			return err
		}
		s.begin(ctx, m, f.payload)
	}
}

// begin starts a request.
func (s *server) begin(ctx context.Context, m message, payload []byte) {
	switch m.Op {
	case "forget":
		s.forget(m)
		return
	case "cancel", "release": // they end at once, and are not answered but where they are wrong
		var a struct {
			Target uint64 `json:"target"`
		}
		if err := strict(m.Args, &a); err != nil {
			s.fail(m.ID, err)
			return
		}
		if m.Op == "release" {
			s.release(a.Target)
			return
		}
		s.mu.Lock()
		stop := s.running[a.Target]
		s.mu.Unlock()
		if stop != nil { // it may have ended by itself
			stop()
		}
		return
	}
	op, ok := operations[m.Op]
	if !ok {
		s.fail(m.ID, &Error{codeUnsupported, fmt.Sprintf("there is no operation %q; there are %s", m.Op,
			strings.Join(operationNames(), ", "))})
		return
	}
	var named struct {
		Model  uint64  `json:"model"`
		X, Out *Tensor // of run-session
	}
	_ = json.Unmarshal(m.Args, &named) // what is wrong with it the operation says
	ctx, stop := context.WithCancel(ctx)
	s.mu.Lock()
	model := s.models[named.Model]
	_, twice := s.running[m.ID]
	full := len(s.running) >= mostRequests
	if !twice && !full {
		s.running[m.ID] = stop
	}
	s.mu.Unlock()
	switch {
	case twice:
		stop()
		s.fail(m.ID, &Error{codeProtocol, fmt.Sprintf("request %d is under way already: give each its own id", m.ID)})
		return
	case full:
		stop()
		s.fail(m.ID, &Error{codeBusy, fmt.Sprintf("%d requests are under way, more are not taken: wait for some",
			mostRequests)})
		return
	}
	q := &request{s: s, id: m.ID, args: m.Args, payload: payload, model: model, files: s.taken(named.X, named.Out)}
	s.requests.Add(1)
	select {
	case s.idle <- job{ctx, stop, op, q}:
	default: // nobody waits for one
		go s.work(job{ctx, stop, op, q})
	}
}

// job is a request that is to be run.
type job struct {
	ctx  context.Context // ends with the request or the server
	stop context.CancelFunc
	op   operation
	q    *request
}

// mostIdle is how many goroutines wait for another request. Their stacks have grown already, which costs a new
// goroutine as much as a small request does.
const mostIdle = 4

// work runs a request, and then others as they come.
func (s *server) work(j job) {
	for {
		s.run(j)
		select {
		case s.waiting <- struct{}{}:
		default:
			return // enough others wait
		}
		select {
		case j = <-s.idle:
			<-s.waiting
		case <-s.ended:
			return
		}
	}
}

func (s *server) run(j job) {
	defer s.requests.Done()
	defer j.stop()
	err := s.guarded(j.ctx, j.op, j.q)
	for _, fd := range j.q.files {
		closeDescriptor(fd)
	}
	s.mu.Lock()
	delete(s.running, j.q.id)
	s.mu.Unlock()
	if err != nil {
		s.fail(j.q.id, ended(j.ctx, j.q, err))
	}
}

// ended is a request's error; of one that was ended from outside it says by what.
func ended(ctx context.Context, q *request, err error) error {
	switch {
	case ctx.Err() != nil:
		return &Error{codeCanceled, "the request was cancelled"}
	case q.model != nil && errors.Is(err, context.Canceled) && q.model.isClosed():
		return &Error{codeCanceled, fmt.Sprintf("the model %s was closed meanwhile", q.model.info.Name)}
	}
	return err
}

// guarded runs an operation. A panic is the request's error; the process goes on.
func (s *server) guarded(ctx context.Context, op operation, q *request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if os.Getenv("GRETA_PANIC") != "" {
				debug.PrintStack()
			}
			err = &Error{codeInternal, fmt.Sprintf("internal error: %v; please report it (GRETA_PANIC=1 prints where)", p)}
		}
	}()
	mapped.Watch()
	defer mapped.Recover()
	return op(s, ctx, q)
}

// end waits for what is under way, and closes all models.
func (s *server) end() error {
	done := make(chan struct{})
	go func() {
		s.requests.Wait()
		close(done)
	}()
	grace := s.opt.Grace
	if grace == 0 {
		grace = 2 * time.Second
	}
	select {
	case <-done:
	case <-time.After(grace):
		return nil // a step that takes longer uses the models still: the end of the process frees them
	}
	s.mu.Lock()
	models := s.models
	s.models, s.sessions = nil, nil
	s.mu.Unlock()
	var errs []error
	for _, m := range models {
		errs = append(errs, m.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, free := range s.leases {
		free()
	}
	for _, a := range s.attached {
		a.free()
	}
	s.leases, s.attached = map[uint64]func(){}, map[uint64]*attachment{}
	return errlist.Join(errs...)
}

// noteUnshared says once that shared memory cannot be had.
func (s *server) noteUnshared(err error) {
	s.unshared.Do(func() { s.opt.Log.Printf("tensors go through the pipe: shared memory cannot be had: %v", err) })
}
