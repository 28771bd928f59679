// Traces: a span for each request, sent as OTLP over HTTP in JSON, which every collector takes.

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. A nil one makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	carry    propagation.TraceContext
}

// NewTracer sends spans to a collector, http://HOST:4318 or with a path. Spans that cannot be sent are
// dropped; report is told why.
func NewTracer(endpoint, version string, report func(error)) (*Tracer, error) {
	if !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return nil, fmt.Errorf("traces go to %s: http://HOST:4318 is expected", endpoint)
	}
	if strings.Count(strings.TrimSuffix(endpoint, "/"), "/") == 2 {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	e := &otlp{url: endpoint, client: &http.Client{Timeout: 10 * time.Second}, report: report}
	res := resource.NewSchemaless(attribute.String("service.name", "greta"), attribute.String("service.version", version))
	t := &Tracer{provider: sdk.NewTracerProvider(sdk.WithBatcher(e, sdk.WithBatchTimeout(time.Second)),
		sdk.WithResource(res))}
	t.tracer = t.provider.Tracer("github.com/greta-project/greta/serve")
	return t, nil
}

// span is one request's.
type span struct{ span trace.Span }

// start begins a span behind the one that the client names.
func (t *Tracer) start(ctx context.Context, r *http.Request, route string) (context.Context, *span) {
	if t == nil {
		return ctx, nil
	}
	ctx = t.carry.Extract(ctx, propagation.HeaderCarrier(r.Header))
	ctx, s := t.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
	return ctx, &span{s}
}

// generated adds what an answer took, by the names of vLLM's spans.
func (s *span) generated(model string, u usage, l *live, r Result) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.String("gen_ai.response.model", model),
		attribute.Int("gen_ai.usage.prompt_tokens", u.prompt),
		attribute.Int("gen_ai.usage.completion_tokens", u.completion),
		attribute.Float64("gen_ai.latency.time_in_queue", r.Queue.Seconds()),
		attribute.Float64("gen_ai.latency.time_to_first_token", float64(l.first.Load())/1e9),
		attribute.Float64("gen_ai.latency.time_in_model_prefill", r.Prefill.Seconds()),
		attribute.Float64("gen_ai.latency.time_in_model_decode", r.Decode.Seconds()))
}

func (s *span) end(status int, err error) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// close sends what is left.
func (t *Tracer) close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// otlp sends spans.
type otlp struct {
	url    string
	client *http.Client
	report func(error)
}

// Shutdown has nothing to do: the provider has sent all.
func (*otlp) Shutdown(context.Context) error { return nil }

// ExportSpans sends spans; that it failed is reported, and the server goes on.
func (o *otlp) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	var list []any
	for _, s := range spans {
		m := map[string]any{"traceId": s.SpanContext().TraceID().String(), "spanId": s.SpanContext().SpanID().String(),
			"name": s.Name(), "kind": int(s.SpanKind()), "attributes": otlpAttributes(s.Attributes()),
			"startTimeUnixNano": strconv.FormatInt(s.StartTime().UnixNano(), 10),
			"endTimeUnixNano":   strconv.FormatInt(s.EndTime().UnixNano(), 10)}
		if s.Parent().IsValid() {
			m["parentSpanId"] = s.Parent().SpanID().String()
		}
		if s.Status().Code == codes.Error {
			m["status"] = map[string]any{"code": 2, "message": s.Status().Description}
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource": map[string]any{"attributes": otlpAttributes(spans[0].Resource().Attributes())},
		"scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "github.com/greta-project/greta/serve"},
			"spans": list}}}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", o.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			err = fmt.Errorf("%s answers %s", o.url, resp.Status)
		}
	}
	if err != nil {
		o.report(fmt.Errorf("traces were not sent: %w", err))
	}
	return nil
}

func otlpAttributes(in []attribute.KeyValue) []any {
	out := make([]any, 0, len(in))
	for _, kv := range in {
		var v any
		switch kv.Value.Type() {
		case attribute.INT64:
			v = map[string]any{"intValue": strconv.FormatInt(kv.Value.AsInt64(), 10)}
		case attribute.FLOAT64:
			v = map[string]any{"doubleValue": kv.Value.AsFloat64()}
		case attribute.BOOL:
			v = map[string]any{"boolValue": kv.Value.AsBool()}
		default:
			v = map[string]any{"stringValue": kv.Value.AsString()}
		}
		out = append(out, map[string]any{"key": string(kv.Key), "value": v})
	}
	return out
}
