package bridge

// Logits, and sessions: positions in caches that the client goes through by itself.

import (
	"context"
	"sync"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

// session is one of a client's.
type session struct {
	model *loaded
	mu    sync.Mutex // one request at a time
	inner *engine.Session
	ended bool
}

// mostSpare is how many sessions are kept for the next logits.
const mostSpare = 4

// borrow gives a session at position 0, and takes it back by give.
func (m *loaded) borrow() (*engine.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.spare); n > 0 {
		s := m.spare[n-1]
		m.spare = m.spare[:n-1]
		s.Reset()
		return s, nil
	}
	return m.Engine().NewSession()
}

func (m *loaded) give(s *engine.Session) {
	m.mu.Lock()
	keep := len(m.spare) < mostSpare
	if keep {
		m.spare = append(m.spare, s)
	}
	m.mu.Unlock()
	if !keep {
		_ = s.Close() // frees memory; there is nobody to tell
	}
}

// logits computes those of every position of a text's tokens, or of the last.
func (s *server) logits(ctx context.Context, q *request) (err error) {
	var a struct {
		Model  uint64 `json:"model"`
		Tokens ids    `json:"tokens"`
		Last   bool   `json:"last"`
	}
	m, ctx, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	if m.info.Kind != "model" {
		return usagef("%s is a %s: it has no logits", m.info.Name, map[string]string{"block": "block",
			"embed": "model of vectors"}[m.info.Kind])
	}
	inner, err := m.borrow()
	if err != nil {
		return err
	}
	defer m.give(inner)
	r, err := s.rows(ctx, m, inner, a.Tokens, !a.Last)
	if err != nil {
		r.drop()
		return err
	}
	return s.send(q, map[string]any{"logits": &r.Tensor}, r)
}

// rows computes tokens and gives the logits of all, or of the last.
func (s *server) rows(ctx context.Context, m *loaded, inner *engine.Session, tokens []int32, all bool) (*result,
	error) {
	switch v := m.info.Vocabulary; {
	case len(tokens) == 0:
		return nil, usagef("no tokens to compute")
	case len(tokens) > inner.Left():
		return nil, usagef("%d tokens at position %d do not fit the context of %d", len(tokens), inner.Pos(), m.info.Context)
	default:
		for i, t := range tokens {
			if t < 0 || int(t) >= v {
				return nil, usagef("token %d is %d, the vocabulary has %d", i, t, v)
			}
		}
	}
	if !all {
		logits, err := inner.Prefill(ctx, tokens)
		if err != nil {
			return nil, err
		}
		r, err := s.newResult(1, len(logits))
		if err == nil {
			copy(r.data, logits)
		}
		return r, err
	}
	var r *result
	err := inner.PrefillAll(ctx, tokens, func(i int, logits []float32) (err error) {
		if r == nil {
			if r, err = s.newResult(len(tokens), len(logits)); err != nil {
				return err
			}
		}
		copy(r.data[i*len(logits):], logits)
		return nil
	})
	return r, err
}

// openSession begins a session.
func (s *server) openSession(ctx context.Context, q *request) error {
	var a struct {
		Model uint64 `json:"model"`
	}
	m, _, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	if m.info.Kind == "embed" {
		return usagef("%s gives vectors of texts: it has no sessions", m.info.Name)
	}
	inner, err := m.Engine().NewSession()
	if err != nil {
		return err
	}
	u := &session{model: m, inner: inner}
	s.mu.Lock()
	s.lastID++
	id := s.lastID
	s.sessions[id] = u
	s.mu.Unlock()
	m.mu.Lock()
	m.open = append(m.open, u)
	m.mu.Unlock()
	return q.ok(map[string]any{"session": id}, nil)
}

// readSession reads a request's arguments and finds the session that one of them names, for a
// request that must call done.
func (s *server) readSession(ctx context.Context, q *request, args any, id *uint64) (*session, context.Context, func(),
	error) {
	if err := strict(q.args, args); err != nil {
		return nil, nil, nil, err
	}
	return s.find(ctx, q, *id)
}

// find gives a session for a request that must call done.
func (s *server) find(ctx context.Context, q *request, id uint64) (*session, context.Context, func(), error) {
	s.mu.Lock()
	u := s.sessions[id]
	model := uint64(0)
	for at, m := range s.models {
		if u != nil && m == u.model {
			model = at
		}
	}
	s.mu.Unlock()
	if u == nil || model == 0 {
		return nil, nil, nil, usagef("there is no session %d: it is closed, or its model is", id)
	}
	_, ctx, done, err := s.use(ctx, q, model)
	if err != nil {
		return nil, nil, nil, err
	}
	u.mu.Lock()
	if u.ended {
		u.mu.Unlock()
		done()
		return nil, nil, nil, usagef("session %d is closed", id)
	}
	return u, ctx, func() { u.mu.Unlock(); done() }, nil
}

// runSession computes tokens, or a block's rows, behind what the session has.
func (s *server) runSession(ctx context.Context, q *request) error {
	var a struct {
		Session uint64  `json:"session"`
		Tokens  ids     `json:"tokens"`
		X       *Tensor `json:"x"`
		All     bool    `json:"all"`   // the logits of all tokens, not of the last alone
		Reset   bool    `json:"reset"` // from position 0
		// Out is where a block's output goes in memory of the device. X lies there too.
		Out *Tensor `json:"out"`
	}
	u, ctx, done, err := s.readSession(ctx, q, &a, &a.Session)
	if err != nil {
		return err
	}
	defer done()
	block := u.model.info.Kind == "block"
	switch {
	case block && (a.X == nil || a.Tokens != nil):
		return usagef("%s is a block: x is expected, rows of %d numbers", u.model.info.Name, u.model.info.Width)
	case !block && a.X != nil:
		return usagef("%s takes tokens, not x", u.model.info.Name)
	}
	held := a.Out != nil || a.X != nil && a.X.Device != nil
	if held {
		if err := checkHeld(a.X, a.Out); err != nil {
			return err
		}
	}
	if a.Reset {
		u.inner.Reset()
	}
	if held {
		return s.blockHeld(q, u, a.X, a.Out)
	}
	var r *result
	if block {
		r, err = s.blockRows(u, a.X, q.payload)
	} else {
		r, err = s.rows(ctx, u.model, u.inner, a.Tokens, a.All)
	}
	if err != nil {
		r.drop()
		return err
	}
	return s.send(q, map[string]any{"out": &r.Tensor, "pos": u.inner.Pos()}, r)
}

// checkRows refuses what are no rows for a block.
func (u *session) checkRows(x *Tensor) error {
	if width := u.model.info.Width; len(x.Shape) != 2 || x.Shape[1] != width {
		return usagef("x has the shape %v, expected is [rows, %d]", x.Shape, width)
	}
	if n := x.Shape[0]; n <= 0 || n > u.inner.Left() {
		return usagef("%d rows at position %d: between 1 and %d fit the context of %d", n, u.inner.Pos(),
			u.inner.Left(), u.model.info.Context)
	}
	return nil
}

func (s *server) blockRows(u *session, x *Tensor, payload []byte) (*result, error) {
	if err := u.checkRows(x); err != nil {
		return nil, err
	}
	in, err := s.open(x, payload, "f32")
	if err != nil {
		return nil, err
	}
	defer in.free()
	out, err := u.inner.Block(in.floats())
	if err != nil {
		return nil, err
	}
	r, err := s.newResult(x.Shape[0], len(out)/x.Shape[0])
	if err == nil {
		copy(r.data, out)
	}
	return r, err
}

// rewind goes back to a position.
func (s *server) rewind(ctx context.Context, q *request) error {
	var a struct {
		Session uint64 `json:"session"`
		Pos     int    `json:"pos"`
	}
	u, _, done, err := s.readSession(ctx, q, &a, &a.Session)
	if err != nil {
		return err
	}
	defer done()
	if err := u.inner.Rewind(a.Pos); err != nil {
		return usagef("%v", err)
	}
	return q.ok(map[string]any{"pos": u.inner.Pos()}, nil)
}

// endSession frees a session's caches.
func (s *server) endSession(ctx context.Context, q *request) error {
	var a struct {
		Session uint64 `json:"session"`
	}
	u, _, done, err := s.readSession(ctx, q, &a, &a.Session)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	delete(s.sessions, a.Session)
	s.mu.Unlock()
	if err := u.end(); err != nil {
		return err
	}
	return q.ok(nil, nil)
}

// end closes a session; the caller holds its lock or is alone.
func (u *session) end() error {
	if u.ended {
		return nil
	}
	u.ended = true
	return u.inner.Close()
}

// endSessions closes all sessions of a model that nothing uses any more.
func (m *loaded) endSessions() error {
	var errs []error
	for _, u := range m.open {
		errs = append(errs, u.end())
	}
	m.open = nil
	return errlist.Join(errs...)
}

// attach maps memory of the client's until detach, so that requests may name it by a handle.
func (s *server) attach(_ context.Context, q *request) error {
	var a struct {
		Path  string `json:"path"`
		Bytes int    `json:"bytes"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	if a.Bytes <= 0 {
		return usagef("attach: %d bytes, it must be positive", a.Bytes)
	}
	data, free, err := mapShared(a.Path, a.Bytes)
	if err != nil {
		return usagef("shared memory %s: %v", a.Path, err)
	}
	s.mu.Lock()
	s.lastID++
	id := s.lastID
	s.attached[id] = &attachment{data: data, free: free}
	s.mu.Unlock()
	// Its ends, so that the other side can tell that it is the same memory.
	return q.ok(map[string]any{"handle": id, "first": data[0], "last": data[len(data)-1]}, nil)
}

// detachOp forgets attached memory.
func (s *server) detachOp(_ context.Context, q *request) error {
	var a struct {
		Handle uint64 `json:"handle"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	if err := s.detach(a.Handle); err != nil {
		return err
	}
	return q.ok(nil, nil)
}
