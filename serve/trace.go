// Traces: a span for each request.

package serve

import (
	"context"
	"net/http"
)

// Tracer makes spans. A nil one makes none.
type Tracer struct{}

type span struct{}

func (t *Tracer) start(ctx context.Context, _ *http.Request, _ string) (context.Context, *span) {
	return ctx, nil
}
func (t *Tracer) close() error { return nil }
func (s *span) end(int, error) {}
