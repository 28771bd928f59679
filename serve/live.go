// Who runs: requests under way with their speed, for the page, the metrics and estimates of waiting.

package serve

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/internal/sorting"
)

// live is one request under way.
type live struct {
	id, model, key, route string
	prompt, max, choices  int
	began                 time.Time
	tokens                atomic.Int64
	first, last           atomic.Int64 // nanoseconds behind began
	gaps                  func(seconds float64)
	finishes              []string
}

// token counts one of the answer's.
func (l *live) token(int) {
	now := int64(time.Since(l.began))
	if l.tokens.Add(1) == 1 {
		l.first.Store(now)
	} else if l.gaps != nil {
		l.gaps(float64(now-l.last.Load()) / 1e9)
	}
	l.last.Store(now)
}

// finish notes why an answer ended.
func (l *live) finish(reason string) { l.finishes = append(l.finishes, reason) }

// liveView is all requests under way.
type liveView struct {
	mu      sync.Mutex
	running map[*live]struct{}
	mean    float64 // seconds that a request takes, of the last ones
	metrics *metrics
}

func newLiveView() *liveView { return &liveView{running: map[*live]struct{}{}} }

func (v *liveView) begin(rs *requestState, j *job) *live {
	l := &live{id: rs.id, model: rs.model, key: rs.key.name(), route: rs.route, prompt: len(j.request.Prompt),
		max: j.request.Max, choices: max(1, j.request.Choices), began: time.Now()}
	if v.metrics != nil {
		l.gaps = v.metrics.gaps(rs.model)
	}
	v.mu.Lock()
	v.running[l] = struct{}{}
	v.mu.Unlock()
	return l
}

func (v *liveView) end(l *live) {
	took := time.Since(l.began).Seconds()
	v.mu.Lock()
	delete(v.running, l)
	if v.mean == 0 {
		v.mean = took
	}
	v.mean += (took - v.mean) / 32
	v.mu.Unlock()
}

// patience is when to come again: as long as a request takes.
func (v *liveView) patience() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return min(max(time.Duration(v.mean*float64(time.Second)), time.Second), time.Minute)
}

// liveRequest is a row of the live view.
type liveRequest struct {
	ID      string  `json:"id"`
	Model   string  `json:"model"`
	Key     string  `json:"key,omitempty"`
	Route   string  `json:"route"`
	State   string  `json:"state"` // waiting: no token yet; running
	Prompt  int     `json:"prompt_tokens"`
	Tokens  int64   `json:"tokens"`
	Max     int     `json:"max_tokens"`
	Choices int     `json:"choices"`
	Seconds float64 `json:"seconds"`
	First   float64 `json:"seconds_to_first_token,omitempty"`
	Speed   float64 `json:"tokens_per_second"`
}

// liveModel is a model's state in the live view.
type liveModel struct {
	Name    string         `json:"name"`
	Device  string         `json:"device"`
	Context int            `json:"context"`
	Rows    int            `json:"rows"`      // that a step may have
	Last    int            `json:"last_rows"` // that the last one had
	Running int            `json:"running"`
	Waiting int            `json:"waiting"`
	Why     map[string]int `json:"waiting_by,omitempty"`
	Used    int            `json:"pages_used"`
	Pages   int            `json:"pages"`
	Steps   uint64         `json:"steps"`
	Hits    uint64         `json:"prefix_hits"`
	Queries uint64         `json:"prefix_queries"`
	Preempt uint64         `json:"preemptions"`
}

// liveFrame is what the live view shows at a time.
type liveFrame struct {
	Time     float64       `json:"time"` // seconds since 1970
	Requests []liveRequest `json:"requests"`
	Models   []liveModel   `json:"models"`
	Speed    float64       `json:"tokens_per_second"`
}

// accepts says whether a client asks for a kind of answer.
func accepts(r *http.Request, kind string) bool {
	return strings.Contains(r.Header.Get("Accept"), kind)
}

func (s *Server) frame() liveFrame {
	f := liveFrame{Time: float64(time.Now().UnixMilli()) / 1000, Requests: []liveRequest{}, Models: []liveModel{}}
	v := s.live
	v.mu.Lock()
	for l := range v.running {
		n := l.tokens.Load()
		r := liveRequest{ID: l.id, Model: l.model, Key: l.key, Route: l.route, State: "waiting", Prompt: l.prompt,
			Tokens: n, Max: l.max, Choices: l.choices, Seconds: time.Since(l.began).Seconds()}
		if n > 0 {
			r.State, r.First = "running", float64(l.first.Load())/1e9
			if d := r.Seconds - r.First; n > 1 && d > 0 {
				r.Speed = float64(n-1) / d
			}
		}
		f.Speed += r.Speed
		f.Requests = append(f.Requests, r)
	}
	v.mu.Unlock()
	sorting.Sort(f.Requests, func(a, b liveRequest) int {
		if c := cmp.Compare(b.Seconds, a.Seconds); c != 0 {
			return c
		}
		return cmp.Compare(a.ID, b.ID)
	})
	f.Requests = f.Requests[:min(len(f.Requests), 256)]
	s.models.Loaded(func(name string, m Model) {
		st, i := m.Stats(), m.Info()
		f.Models = append(f.Models, liveModel{Name: name, Device: i.Device, Context: i.Context, Rows: i.Rows,
			Last:    st.LastRows,
			Running: st.Running, Waiting: st.Waiting, Why: st.WaitingBy, Used: st.PagesUsed, Pages: st.Pages, Steps: st.Steps,
			Hits: st.PrefixHits, Queries: st.PrefixQueries, Preempt: st.Preemptions})
	})
	return f
}

// liveStream gives a frame, or with Accept: text/event-stream one every half second.
func (s *Server) liveStream(w http.ResponseWriter, r *http.Request, _ *requestState) error {
	if !accepts(r, "text/event-stream") {
		writeJSON(w, 200, s.frame())
		return nil
	}
	e := s.newSSE(w)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for !s.draining.Load() {
		if err := e.event("", s.frame()); err != nil {
			return nil
		}
		if err := e.flush(); err != nil {
			return nil // the page was closed
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}
