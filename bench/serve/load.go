// Package serve measures a server of OpenAI's protocol as its clients see it, by vLLM's definitions.
//
// TTFT is the first chunk less the sending, E2EL the last chunk less the sending, TPOT of a request
// (E2EL − TTFT)/(output tokens − 1), ITL all later gaps between chunks of all requests, goodput the
// requests a second that meet every bound. Load is a number of users, each of whom sends the next
// request when the last is answered, or a rate at which requests are sent.
package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options are a measurement's.
type Options struct {
	URL     string // of the server, with or without /v1
	Model   string // "": the first that it lists
	Key     string
	Chat    bool // ask /v1/chat/completions rather than /v1/completions
	Users   []int
	Rates   []float64 // requests a second
	Burst   float64   // 1: Poisson; less: more bursty; more: more even
	Input   int       // tokens of a prompt
	Output  int       // tokens of an answer
	Data    []Prompt  // instead of random prompts
	N       int       // requests of a level; 0: four for each user, 100 at least
	Seed    uint64
	Bounds  map[string]time.Duration // of goodput: ttft, tpot, e2el
	NoEnd   bool                     // answers may end before Output tokens
	Extra   map[string]any           // more fields of a request
	Say     func(format string, a ...any)
	Timeout time.Duration // of a request; 0: 10 minutes
}

// Prompt is one of a file's.
type Prompt struct {
	Text string
	Max  int // 0: Options.Output
}

// outcome is what a client saw of a request.
type outcome struct {
	sent, first, last time.Duration // behind the level's beginning
	gaps              []time.Duration
	prompt, tokens    int // by the server's usage
	chunks, bytes     int
	text              string
	finish            string
	err               error
}

// runner measures one server.
type runner struct {
	opt    Options
	client *http.Client
	base   string
	words  float64 // tokens a word
	extra  float64 // tokens beside the words, of each prompt
	tokens bool    // the server has /tokenize
}

// Run measures all levels. Levels that failed in part are in the result, with what failed.
func Run(ctx context.Context, opt Options) (*Result, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	most := 1
	for _, u := range opt.Users {
		most = max(most, u)
	}
	if len(opt.Rates) > 0 {
		most = max(most, 1024)
	}
	r := &runner{opt: opt, base: strings.TrimSuffix(strings.TrimSuffix(opt.URL, "/"), "/v1")}
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: most, MaxIdleConns: most,
		DisableCompression: true,
		IdleConnTimeout:    time.Minute}}
	defer r.client.CloseIdleConnections()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	out := &Result{URL: opt.URL, Model: r.opt.Model, Endpoint: r.path(), Started: time.Now().UTC()}
	for _, users := range opt.Users {
		l, err := r.level(ctx, users, 0)
		if err != nil {
			return out, err
		}
		out.Levels = append(out.Levels, l)
	}
	for _, rate := range opt.Rates {
		l, err := r.level(ctx, 0, rate)
		if err != nil {
			return out, err
		}
		out.Levels = append(out.Levels, l)
	}
	return out, nil
}

// Check refuses options that mean nothing, and fills in what was left out.
func (o *Options) Check() error {
	switch {
	case len(o.Users) == 0 && len(o.Rates) == 0:
		return errors.New("neither users nor a rate is given")
	case o.Output < 1 || o.Input < 1:
		return fmt.Errorf("input %d and output %d must be positive", o.Input, o.Output)
	case !(o.Burst > 0):
		return fmt.Errorf("burstiness %v: it must be above 0", o.Burst)
	}
	for _, u := range o.Users {
		if u < 1 || u > 1<<16 {
			return fmt.Errorf("%d users: between 1 and 65536 are possible", u)
		}
	}
	for _, x := range o.Rates {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("a rate of %v: it must be above 0", x)
		}
	}
	for name, b := range o.Bounds {
		if name != "ttft" && name != "tpot" && name != "e2el" {
			return fmt.Errorf("goodput has no bound %s; there are ttft, tpot and e2el", name)
		} else if b <= 0 {
			return fmt.Errorf("goodput's %s must be above 0", name)
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return nil
}

func (r *runner) path() string {
	if r.opt.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// level measures one load.
func (r *runner) level(ctx context.Context, users int, rate float64) (*Level, error) {
	n := r.opt.N
	if n == 0 {
		n = max(4*users, 100)
	}
	rng := rand.New(rand.NewPCG(r.opt.Seed, uint64(users)+math.Float64bits(rate)))
	bodies := make([][]byte, n)
	wants := make([]int, n)
	for i := range bodies {
		bodies[i], wants[i] = r.body(rng, i)
	}
	// Warm-up: connections, captured steps.
	warm := min(max(users, 2), n, 64)
	if err := r.warm(ctx, rng, warm); err != nil {
		return nil, err
	}
	out := make([]outcome, n)
	start := time.Now()
	if users > 0 {
		r.closed(ctx, start, users, bodies, out)
	} else {
		r.open(ctx, start, rate, rng, bodies, out)
	}
	took := time.Since(start)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := summarise(out, wants, took, r.opt)
	l.Users, l.Rate = users, rate
	if rate > 0 {
		l.Burst = r.opt.Burst
	}
	r.verify(ctx, l, out)
	r.opt.Say("%s", l.Line())
	return l, nil
}

// warm sends requests that are not measured; if all fail there is nothing to measure.
func (r *runner) warm(ctx context.Context, rng *rand.Rand, n int) error {
	var g sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		body, _ := r.body(rng, i)
		g.Go(func() { errs[i] = r.ask(ctx, time.Now(), body).err })
	}
	g.Wait()
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("no request was answered, of --output %d tokens each: %w", r.opt.Output, errs[0])
}

// closed lets users send one request behind the other.
func (r *runner) closed(ctx context.Context, start time.Time, users int, bodies [][]byte, out []outcome) {
	next := make(chan int)
	var g sync.WaitGroup
	for range users {
		g.Go(func() {
			for i := range next {
				out[i] = r.ask(ctx, start, bodies[i])
			}
		})
	}
	for i := range bodies {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	g.Wait()
}

// open sends requests at a rate: gaps are of a gamma distribution of shape Burst, as vLLM's are.
func (r *runner) open(ctx context.Context, start time.Time, rate float64, rng *rand.Rand, bodies [][]byte,
	out []outcome) {
	var g sync.WaitGroup
	at := 0.0
	for i := range bodies {
		select {
		case <-time.After(time.Until(start.Add(time.Duration(at * float64(time.Second))))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() { out[i] = r.ask(ctx, start, bodies[i]) })
		at += gamma(rng, r.opt.Burst) / (rate * r.opt.Burst)
	}
	g.Wait()
}

// gamma draws from the gamma distribution of shape k and scale 1 (Marsaglia and Tsang, 2000).
func gamma(rng *rand.Rand, k float64) float64 {
	if k < 1 {
		return gamma(rng, k+1) * math.Pow(rng.Float64(), 1/k)
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := math.Pow(1+c*x, 3)
		if v > 0 && math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
