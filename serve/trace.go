// Traces: a span for each request, sent as OTLP over HTTP in JSON, which every collector takes.

package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	scopeName   = "github.com/greta-project/greta/serve"
	spansAtOnce = 512  // of one message
	spansQueued = 2048 // more are dropped
	spanWait    = time.Second
	serverKind  = 2 // SPAN_KIND_SERVER
	failedCode  = 2 // STATUS_CODE_ERROR
)

// Tracer makes spans. A nil one makes none.
type Tracer struct {
	url      string
	client   *http.Client
	report   func(error)
	resource map[string]any
	sample   sampler

	spans chan *span
	quit  func()
	ended chan struct{} // closed when the last span was sent
}

// NewTracer sends spans to a collector, http://HOST:4318 or with a path. Spans that cannot be sent are
// dropped; report is told why. OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG and OTEL_RESOURCE_ATTRIBUTES of the
// environment mean what OpenTelemetry's specification says.
func NewTracer(endpoint, version string, report func(error)) (*Tracer, error) {
	if !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return nil, fmt.Errorf("traces go to %s: http://HOST:4318 is expected", endpoint)
	}
	if strings.Count(strings.TrimSuffix(endpoint, "/"), "/") == 2 {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	t := &Tracer{url: endpoint, client: &http.Client{Timeout: 10 * time.Second}, report: report,
		spans: make(chan *span, spansQueued), ended: make(chan struct{})}
	var err error
	if t.sample, err = samplerOf(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		return nil, err
	}
	if t.resource, err = resourceOf(os.Getenv("OTEL_RESOURCE_ATTRIBUTES")); err != nil {
		return nil, err
	}
	t.resource["service.name"], t.resource["service.version"] = "greta", version
	quit := make(chan struct{})
	t.quit = sync.OnceFunc(func() { close(quit) })
	go t.run(quit)
	return t, nil
}

// resourceOf reads NAME=VALUE,NAME=VALUE, the values percent-encoded.
func resourceOf(text string) (map[string]any, error) {
	out := map[string]any{}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %q is not NAME=VALUE with a percent-encoded value", pair)
		}
		out[name] = value
	}
	return out, nil
}

// sampler says whether a request has a span: one of a trace, parent the traceparent's flags, -1 where there is none.
type sampler func(trace [16]byte, parent int) bool

// samplerOf reads OpenTelemetry's name of a sampler and its argument.
func samplerOf(name, arg string) (sampler, error) {
	ratio := 1.0
	name, arg = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(arg)
	if strings.HasSuffix(name, "traceidratio") && arg != "" {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: a share from 0 to 1 is expected", arg)
		}
	}
	if name == "" {
		name = "parentbased_always_on"
	}
	root, byParent := strings.CutPrefix(name, "parentbased_")
	switch root {
	case "always_on", "traceidratio":
	case "always_off":
		ratio = 0
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: always_on, always_off or traceidratio is expected, "+
			"or one of them behind parentbased_", name)
	}
	return func(trace [16]byte, parent int) bool {
		if byParent && parent >= 0 {
			return parent&1 == 1
		}
		return ratio == 1 || float64(binary.BigEndian.Uint64(trace[8:])>>1) < ratio*(1<<63)
	}, nil
}

// span is one request's.
type span struct {
	to         *Tracer
	trace      [16]byte
	id, parent [8]byte // parent is zero where there is none
	name       string
	start      time.Time

	mu         sync.Mutex
	stop       time.Time // zero while the request lasts
	attributes map[string]any
	failed     string
}

// start begins a span behind the one that the client names; nil where the request is not sampled.
func (t *Tracer) start(r *http.Request, route string) *span {
	if t == nil {
		return nil
	}
	s := &span{to: t, name: r.Method + " " + route, start: time.Now(),
		attributes: map[string]any{"http.request.method": r.Method, "http.route": route}}
	flags := -1
	if trace, parent, f, ok := traceparent(r.Header.Get("Traceparent")); ok {
		s.trace, s.parent, flags = trace, parent, f
	} else {
		rand.Read(s.trace[:])
	}
	rand.Read(s.id[:])
	if !t.sample(s.trace, flags) {
		return nil
	}
	return s
}

// traceparent reads the header of W3C's Trace Context: VERSION-TRACE-PARENT-FLAGS in lower-case hexadecimal digits.
func traceparent(text string) (trace [16]byte, parent [8]byte, flags int, ok bool) {
	f := strings.Split(strings.TrimSpace(text), "-")
	if len(f) < 4 || f[0] == "00" && len(f) > 4 || f[0] == "ff" || strings.ToLower(text) != text {
		return trace, parent, 0, false
	}
	for i, n := range []int{2, 32, 16, 2} {
		if len(f[i]) != n {
			return trace, parent, 0, false
		}
	}
	all, err := hex.DecodeString(f[0] + f[1] + f[2] + f[3])
	if err != nil {
		return trace, parent, 0, false
	}
	copy(trace[:], all[1:])
	copy(parent[:], all[17:])
	return trace, parent, int(all[25]), trace != [16]byte{} && parent != [8]byte{}
}

// generated adds what an answer took, by the names of vLLM's spans.
func (s *span) generated(model string, u usage, l *live, r Result) {
	if s == nil {
		return
	}
	s.set(map[string]any{"gen_ai.response.model": model,
		"gen_ai.usage.prompt_tokens":           u.prompt,
		"gen_ai.usage.completion_tokens":       u.completion,
		"gen_ai.latency.time_in_queue":         r.Queue.Seconds(),
		"gen_ai.latency.time_to_first_token":   float64(l.first.Load()) / 1e9,
		"gen_ai.latency.time_in_model_prefill": r.Prefill.Seconds(),
		"gen_ai.latency.time_in_model_decode":  r.Decode.Seconds()})
}

func (s *span) set(attributes map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.attributes, attributes)
}

// end hands the span over to be sent; where too many wait it is dropped.
func (s *span) end(status int, err error) {
	if s == nil {
		return
	}
	s.set(map[string]any{"http.response.status_code": status})
	s.mu.Lock()
	s.stop = time.Now()
	if err != nil {
		s.failed = err.Error()
	}
	s.mu.Unlock()
	select {
	case s.to.spans <- s:
	default:
	}
}

// run sends spans until quit is closed, and then those that wait.
func (t *Tracer) run(quit <-chan struct{}) {
	defer close(t.ended)
	var batch []*span
	send := func() {
		if len(batch) == 0 {
			return
		}
		if err := t.send(batch); err != nil {
			t.report(fmt.Errorf("traces were not sent: %w", err))
		}
		batch = nil
	}
	tick := time.NewTicker(spanWait)
	defer tick.Stop()
	for {
		select {
		case s := <-t.spans:
			if batch = append(batch, s); len(batch) == spansAtOnce {
				send()
			}
		case <-tick.C:
			send()
		case <-quit:
			for len(t.spans) > 0 {
				if batch = append(batch, <-t.spans); len(batch) == spansAtOnce {
					send()
				}
			}
			send()
			return
		}
	}
}

// close sends what is left.
func (t *Tracer) close() error {
	if t == nil {
		return nil
	}
	t.quit()
	select {
	case <-t.ended:
		return nil
	case <-time.After(3 * time.Second):
		return errors.New("traces were not all sent within 3 s")
	}
}

// send sends spans as one message.
func (t *Tracer) send(spans []*span) error {
	var list []any
	for _, s := range spans {
		list = append(list, s.otlp())
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": otlpAttributes(t.resource)},
		"scopeSpans": []any{map[string]any{"scope": map[string]string{"name": scopeName}, "spans": list}}}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), "POST", t.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s answers %s", t.url, resp.Status)
	}
	return nil
}

// otlp is the span as OTLP's JSON has it.
func (s *span) otlp() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]any{"traceId": hex.EncodeToString(s.trace[:]), "spanId": hex.EncodeToString(s.id[:]),
		"name": s.name, "kind": serverKind, "attributes": otlpAttributes(s.attributes),
		"startTimeUnixNano": strconv.FormatInt(s.start.UnixNano(), 10),
		"endTimeUnixNano":   strconv.FormatInt(s.stop.UnixNano(), 10)}
	if s.parent != [8]byte{} {
		m["parentSpanId"] = hex.EncodeToString(s.parent[:])
	}
	if s.failed != "" {
		m["status"] = map[string]any{"code": failedCode, "message": s.failed}
	}
	return m
}

func otlpAttributes(in map[string]any) []any {
	out := make([]any, 0, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		value := map[string]any{"stringValue": in[name]}
		switch v := in[name].(type) {
		case int:
			value = map[string]any{"intValue": strconv.Itoa(v)}
		case float64:
			value = map[string]any{"doubleValue": v}
		}
		out = append(out, map[string]any{"key": name, "value": value})
	}
	return out
}
