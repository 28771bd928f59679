// The server: routes, and what is around each of them.

package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are a server's. The zero value of a bound is the default.
type Options struct {
	Models  *Manager
	Keys    *Keys // nil: everybody may do everything
	Version string
	Log     *slog.Logger
	LogText bool // prompts and answers are logged too

	MaxBody     int64         // bytes of a request; default 32 MiB
	MaxMessages int           // of a conversation; default 4096
	MaxTokens   int           // of an answer; default: what the context has room for
	MaxChoices  int           // n; default 128
	MaxQueue    int           // requests beyond those that run; default 1024
	MaxRunning  int           // requests that run at once; default 256
	Timeout     time.Duration // of a request; default: none
	WriteWait   time.Duration // for a reader who does not read; default 30 s

	Origins []string // that browsers may ask from; *: all
	Hosts   []string // names that it is called by; *: any
	Store   string   // folder of stored responses; "": in memory
	Kept    int      // stored responses in memory; default 1000
	Tracer  *Tracer  // nil: no traces
	NoPage  bool
}

// Server answers requests.
type Server struct {
	opt     Options
	models  *Manager
	keys    *Keys
	log     *slog.Logger
	live    *liveView
	metrics *metrics
	store   *store
	mux     *http.ServeMux
	// sameOrigin tells browsers' requests for pages of other origins.
	sameOrigin *http.CrossOriginProtection
	ownNames   atomic.Bool  // names of other machines are refused: it listens for this one alone
	inside     atomic.Int64 // requests that hold a place
	draining   atomic.Bool
	work       sync.WaitGroup
	bodyWait   time.Duration
}

// New makes a server.
func New(opt Options) (*Server, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if opt.MaxBody == 0 {
		opt.MaxBody = 32 << 20
	}
	def(&opt.MaxMessages, 4096)
	def(&opt.MaxChoices, 128)
	def(&opt.MaxQueue, 1024)
	def(&opt.MaxRunning, 256)
	def(&opt.Kept, 1000)
	if opt.WriteWait == 0 {
		opt.WriteWait = 30 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, models: opt.Models, keys: opt.Keys, log: opt.Log, live: newLiveView(),
		sameOrigin: http.NewCrossOriginProtection(), bodyWait: bodyWait}
	if opt.Keys != nil {
		opt.Keys.log = opt.Log
	}
	s.metrics = newMetrics(s)
	var err error
	if s.store, err = openStore(opt.Store, opt.Kept); err != nil {
		return nil, err
	}
	s.routes()
	return s, nil
}

// requestState is what is known of a request.
type requestState struct {
	id      string
	start   time.Time
	key     *Key
	proto   protocol
	route   string
	model   string
	adapter string // of the model, which the request named
	trace   *span
	failed  error        // behind the first byte of an answer
	place   func() error // takes a place among those that run and wait
	leave   func()       // gives it back
}

// fairness says whom to be fair to, and how urgent a request is: no more so than its key is.
func (r *requestState) fairness(asked int) (string, int) {
	if r.key == nil {
		return "", asked
	}
	return r.key.Name, max(asked, 0) + r.key.Priority
}

// salt keeps prefixes of different keys apart, so that none can be found by timing.
func (r *requestState) salt(asked string) string {
	if r.key == nil {
		return asked
	}
	return r.key.Name + "\x00" + asked
}

type handler func(w http.ResponseWriter, r *http.Request, rs *requestState) error

// routes lists what the server answers.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	ask := func(path string, p protocol, h handler) {
		s.mux.HandleFunc("POST "+path, s.around(path, ScopeInference, p, true, h))
	}
	read := func(method, path, scope string, h handler) {
		s.mux.HandleFunc(method+" "+path, s.around(path, scope, openAI, false, h))
	}
	ask("/v1/chat/completions", openAI, s.chatCompletions)
	ask("/v1/completions", openAI, s.completions)
	ask("/v1/embeddings", openAI, s.embeddings)
	ask("/v1/responses", openAI, s.createResponse)
	s.mux.HandleFunc("POST /v1/responses/input_tokens", s.around("/v1/responses/input_tokens", ScopeInference, openAI,
		true, s.countResponse))
	ask("/v1/messages", anthropic, s.messages)
	ask("/v1/messages/count_tokens", anthropic, s.countTokens)
	for _, prefix := range []string{"", "/v1", "/v2"} {
		ask(prefix+"/rerank", openAI, s.rerank)
	}
	ask("/score", openAI, s.score)
	ask("/v1/score", openAI, s.score)
	ask("/tokenize", openAI, s.tokenize)
	ask("/detokenize", openAI, s.detokenize)
	read("GET", "/v1/models", ScopeInference, s.listModels)
	read("GET", "/v1/models/{model...}", ScopeInference, s.getModel)
	read("GET", "/v1/responses/{id}", ScopeInference, s.getResponse)
	read("DELETE", "/v1/responses/{id}", ScopeInference, s.deleteResponse)
	read("POST", "/v1/responses/{id}/cancel", ScopeInference, s.cancelResponse)
	read("GET", "/v1/responses/{id}/input_items", ScopeInference, s.responseItems)
	read("POST", "/v1/conversations", ScopeInference, s.createConversation)
	read("GET", "/v1/conversations/{id}", ScopeInference, s.getConversation)
	read("POST", "/v1/conversations/{id}", ScopeInference, s.updateConversation)
	read("DELETE", "/v1/conversations/{id}", ScopeInference, s.deleteConversation)
	read("GET", "/v1/conversations/{id}/items", ScopeInference, s.listItems)
	read("POST", "/v1/conversations/{id}/items", ScopeInference, s.createItems)
	read("GET", "/v1/conversations/{id}/items/{item}", ScopeInference, s.getItem)
	read("DELETE", "/v1/conversations/{id}/items/{item}", ScopeInference, s.deleteItem)
	read("GET", "/live/requests", ScopeLive, s.liveStream)
	s.mux.HandleFunc("GET /metrics", s.around("/metrics", ScopeMetrics, openAI, false, s.metrics.serve))
	s.mux.HandleFunc("GET /health", s.ready)
	s.mux.HandleFunc("GET /ready", s.ready)
	s.mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]string{"status": "alive"})
	})
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]string{"version": s.opt.Version})
	})
	s.mux.HandleFunc("GET /ping", s.ready)
	if !s.opt.NoPage {
		s.pageRoutes()
	}
	s.mux.HandleFunc("/", s.noRoute)
}

// noRoute answers what no route does: an unknown path, or a known one by another method.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	p := openAI
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(r.URL.Path, "/v1/messages") {
		p = anthropic
	}
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if _, pattern := s.mux.Handler(&http.Request{Method: m, URL: r.URL, Host: r.Host}); pattern != "/" {
			methods = append(methods, m)
		}
	}
	if len(methods) == 0 {
		writeError(w, p, newID("req_"), &Error{Status: 404, Type: "invalid_request_error", Code: "unknown_url",
			Message: fmt.Sprintf("Unknown request URL: %s %s", r.Method, clip(r.URL.Path, 200))})
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeError(w, p, newID("req_"), &Error{Status: 405, Type: "invalid_request_error", Code: "method_not_allowed",
		Message: fmt.Sprintf("Not allowed to %s on %s; use %s", clip(r.Method, 20), clip(r.URL.Path, 200),
			strings.Join(methods, " or "))})
}

// ServeHTTP answers one request. A slash behind a path is nothing, nor are two for one, as users of servers that
// redirect from them expect.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.boundBody(w, r)
	if s.cors(w, r) {
		return
	}
	if clean := path.Clean("/" + r.URL.Path); clean != r.URL.Path {
		same, url := *r, *r.URL
		url.Path, url.RawPath = clean, ""
		same.URL, r = &url, &same
	}
	s.mux.ServeHTTP(w, r)
}

// cors answers what browsers ask before they ask, and says who may read. It gives true where that is all.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || len(s.opt.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	by := s.allows(origin)
	if by < 0 {
		return false
	}
	if s.opt.Origins[by] == "*" {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Request-Id, Retry-After, "+ignoredHeader)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	want := r.Header.Get("Access-Control-Request-Headers")
	if want == "" {
		want = "Authorization, Content-Type, X-Api-Key, Anthropic-Version"
	}
	h.Set("Access-Control-Allow-Headers", want)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// around does for a handler what all want: a name for the request, its key, a place, a bound in time, a
// line in the log, and no panic that others would notice.
func (s *Server) around(route, scope string, p protocol, place bool, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := p
		if r.Header.Get("Anthropic-Version") != "" && strings.HasPrefix(route, "/v1/models") {
			p = anthropic // a path of both protocols
		}
		rs := &requestState{id: newID("req_"), start: time.Now(), proto: p, route: route}
		aw := &answerWriter{ResponseWriter: w}
		w.Header().Set("X-Request-Id", rs.id)
		w.Header().Set("Request-Id", rs.id) // Anthropic's name of it
		s.work.Add(1)
		defer s.work.Done()
		ctx := r.Context()
		if s.opt.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.opt.Timeout)
			defer cancel()
		}
		rs.trace = s.opt.Tracer.start(r, route)
		r = r.WithContext(ctx)
		err := why(ctx, s.guarded(aw, r, rs, scope, place, h))
		if err != nil && !aw.begun {
			writeError(aw, p, rs.id, tooLongAt(route, err))
		}
		if err == nil {
			err = rs.failed
		}
		s.note(rs, aw, r, err)
	}
}

// guarded calls a handler that may run.
func (s *Server) guarded(w *answerWriter, r *http.Request, rs *requestState, scope string, place bool,
	h handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("internal error", "request", rs.id, "panic", p, "stack", string(debug.Stack()))
			err = &Error{Status: 500, Type: "server_error", Code: "internal_error",
				Message: "internal error; please report it with the server's log of " + rs.id}
		}
	}()
	if rs.key, err = s.keys.check(r, scope); err != nil {
		return err
	}
	if err := s.fromElsewhere(r, rs.key); err != nil {
		return err
	}
	if !place {
		return h(w, r, rs)
	}
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
		return &Error{Status: 503, Type: "server_error", Code: "draining", Message: "the server is ending",
			After: time.Second}
	}
	rs.place = func() error { return s.place(rs) }
	defer func() {
		if rs.leave != nil {
			rs.leave()
		}
	}()
	return h(w, r, rs)
}

// place takes a place for a request whose body has come: one that comes slowly keeps nobody out.
func (s *Server) place(rs *requestState) error {
	most := int64(s.opt.MaxQueue + s.opt.MaxRunning)
	if n := s.inside.Add(1); n > most {
		s.inside.Add(-1)
		return &Full{Waiting: int(n) - s.opt.MaxRunning - 1, Most: s.opt.MaxQueue, After: s.live.patience()}
	}
	if err := s.keys.enter(rs.key); err != nil {
		s.inside.Add(-1)
		return err
	}
	rs.leave = func() {
		s.keys.leave(rs.key)
		s.inside.Add(-1)
	}
	return nil
}

// note writes the line of the log.
func (s *Server) note(rs *requestState, w *answerWriter, r *http.Request, err error) {
	took := time.Since(rs.start)
	rs.trace.end(w.status, err)
	s.metrics.answered(rs.route, w.status)
	level := slog.LevelInfo
	if w.status >= 500 {
		level = slog.LevelError
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("request", rs.id), slog.String("method", r.Method), slog.String("path", rs.route),
		slog.Int("status", w.status), slog.Int64("bytes", w.bytes), slog.Float64("seconds", took.Seconds())}
	if rs.model != "" {
		attrs = append(attrs, slog.String("model", rs.model))
	}
	if rs.key != nil {
		attrs = append(attrs, slog.String("key", rs.key.Name))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.log.LogAttrs(r.Context(), level, "answered", attrs...)
}

// answerWriter remembers what was answered.
type answerWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
	begun  bool
}

func (w *answerWriter) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *answerWriter) Write(b []byte) (int, error) {
	w.WriteHeader(200)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// use finds the model that a request names.
func (s *Server) use(r *http.Request, rs *requestState, name string) (Model, func(), error) {
	e, err := s.models.find(name, rs.key)
	if err != nil {
		return nil, nil, err
	}
	name = cmp.Or(name, e.spec.Name)
	rs.model, rs.adapter = e.spec.Name, e.adapterOf(name)
	if rs.place != nil && rs.leave == nil {
		if err := rs.place(); err != nil {
			return nil, nil, err
		}
	}
	return s.models.Use(r.Context(), name)
}

// read reads a request's body into q and takes the model that is then in name. The model is given back by release.
func (s *Server) read(w http.ResponseWriter, r *http.Request, rs *requestState, q any, name *string) (m Model,
	release func(), err error) {
	if err := readBody(w, r, s.opt.MaxBody, q); err != nil {
		return nil, nil, err
	}
	return s.use(r, rs, *name)
}

// ready says whether requests are welcome.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		writeJSON(w, 503, map[string]string{"status": "draining"})
		return
	}
	writeJSON(w, 200, map[string]string{"status": "ok"})
}

// Drain takes no more requests and waits for those under way, until ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests were still under way: %w", s.inside.Load(), ctx.Err())
	}
}

// Close ends what the server began itself.
func (s *Server) Close() error {
	return s.opt.Tracer.close()
}

// newID makes a name that nobody guesses.
func newID(prefix string) string {
	var raw [15]byte
	rand.Read(raw[:])
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}
