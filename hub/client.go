package hub

// Requests: errors of servers, waiting and trying again.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 30 * time.Second
	t.MaxIdleConnsPerHost = 16
	t.DisableCompression = true
	return &http.Client{Transport: t}
}

// Refused is a server's answer that trying again does not change.
type Refused struct {
	Address string
	Status  int
	Words   string
}

func (e *Refused) Error() string {
	text := fmt.Sprintf("%s: the server answers %d", e.Address, e.Status)
	if e.Words != "" {
		text += " " + e.Words
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += "; a model that is private or gated wants a token in HF_TOKEN, of an account that was given access"
	case http.StatusNotFound:
		text += "; is the name right?"
	}
	return text
}

// later is a failure that may pass.
type later struct {
	err  error
	wait time.Duration // what the server asks for
}

func (e *later) Error() string { return e.err.Error() }
func (e *later) Unwrap() error { return e.err }

// mostWait bounds how long a server may make us wait.
const mostWait = time.Minute

func retryAfter(h http.Header) time.Duration {
	s := h.Get("Retry-After")
	if n, err := strconv.Atoi(s); err == nil && n >= 0 {
		return min(time.Duration(n)*time.Second, mostWait)
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(time.Until(t), 0), mostWait)
	}
	return 0
}

// nowhere is a redirection that leads to nothing: trying again does not change it.
type nowhere struct{ what string }

func (e *nowhere) Error() string { return e.what }

// redirected lets go on where a server sends us, without the token where that is not the endpoint: Go's client itself
// keeps it for other ports, other schemes and subdomains.
func (h *Hub) redirected(q *http.Request, via []*http.Request) error {
	if q.URL.Scheme != "http" && q.URL.Scheme != "https" {
		return &nowhere{fmt.Sprintf("the server redirects to %q, whose scheme is not http or https", q.URL.Redacted())}
	}
	if len(via) >= 10 {
		return &nowhere{"the server redirects more than 10 times"}
	}
	if !h.ours(q.URL) {
		q.Header.Del("Authorization")
	}
	return nil
}

// watched is an answer's body that must not stall: neither what is got nor the words of an error may hang.
type watched struct {
	io.ReadCloser
	ctx   context.Context
	stop  context.CancelCauseFunc
	watch *time.Timer
	stall time.Duration
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.watch.Reset(w.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) && context.Cause(w.ctx) != nil {
		err = context.Cause(w.ctx)
	}
	return n, err
}

func (w *watched) Close() error {
	w.watch.Stop()
	err := w.ReadCloser.Close()
	w.stop(nil)
	return err
}

// request sends one. The token goes to the endpoint alone.
func (h *Hub) request(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	outer := ctx
	ctx, stop := context.WithCancelCause(ctx)
	r, err := h.send(ctx, method, address, header)
	if err != nil {
		stop(nil)
		if outer.Err() != nil {
			return nil, outer.Err()
		}
		return nil, err
	}
	stalled := fmt.Errorf("nothing came for %v", h.Stall)
	r.Body = &watched{r.Body, ctx, stop, time.AfterFunc(h.Stall, func() { stop(stalled) }), h.Stall}
	if r.StatusCode < 300 {
		return r, nil
	}
	words, _ := io.ReadAll(io.LimitReader(r.Body, 2048))
	r.Body.Close()
	refused := &Refused{Address: address, Status: r.StatusCode, Words: plainWords(words)}
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500 || r.StatusCode == http.StatusRequestTimeout {
		return nil, &later{refused, retryAfter(r.Header)}
	}
	return nil, refused
}

// send sends a request and tells which failures may pass.
func (h *Hub) send(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		q.Header[k] = v
	}
	q.Header.Set("User-Agent", "greta")
	if h.Token != "" && h.ours(q.URL) {
		q.Header.Set("Authorization", "Bearer "+h.Token)
	}
	client := *h.Client
	client.CheckRedirect = h.redirected
	r, err := client.Do(q)
	if err == nil {
		return r, nil
	}
	var unknown *net.DNSError
	var lost *nowhere
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return nil, fmt.Errorf("%s is not reached: %w", q.URL.Host, err)
	case errors.As(err, &lost), errors.As(err, &certificate):
		return nil, err
	}
	return nil, &later{err: err}
}

// ours says whether an address belongs to the endpoint that the token is for.
func (h *Hub) ours(u *url.URL) bool {
	e, err := url.Parse(h.Endpoint)
	return err == nil && e.Host == u.Host && e.Scheme == u.Scheme
}

// plainWords takes a server's words for an error, if they are some.
func plainWords(body []byte) string {
	var object struct{ Error string }
	if json.Unmarshal(body, &object) == nil && object.Error != "" {
		return strconv.Quote(object.Error)
	}
	s := strings.TrimSpace(string(body))
	if s == "" || len(s) > 200 || strings.ContainsAny(s, "<>\x1b") {
		return ""
	}
	return strconv.Quote(s)
}

// again tries work until it succeeds, fails for good, or fails too often in a row. Work says whether it got on.
func (h *Hub) again(ctx context.Context, work func() (gotOn bool, err error)) error {
	for failed := 0; ; {
		gotOn, err := work()
		var l *later
		if err == nil || !errors.As(err, &l) {
			return err
		}
		if gotOn {
			failed = 0
		}
		if failed++; failed >= h.Tries {
			return fmt.Errorf("given up behind %d tries: %w", failed, l.err)
		}
		wait := h.Wait << (failed - 1)
		wait = max(min(wait, mostWait), l.wait)
		wait += rand.N(wait/4 + 1)
		h.note("%v; trying again in %v", l.err, wait.Round(100*time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// mostJSON bounds what a server may say of a model.
const mostJSON = 32 << 20

// getJSON reads a server's JSON.
func (h *Hub) getJSON(ctx context.Context, address string, header http.Header, into any) error {
	return h.again(ctx, func() (bool, error) {
		r, err := h.request(ctx, http.MethodGet, address, header)
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		data, err := io.ReadAll(io.LimitReader(r.Body, mostJSON+1))
		if err != nil {
			return false, &later{err: fmt.Errorf("%s: %w", address, err)}
		}
		if len(data) > mostJSON {
			return false, fmt.Errorf("%s: the answer has more than %d bytes", address, mostJSON)
		}
		if err := json.Unmarshal(data, into); err != nil {
			return false, fmt.Errorf("%s: the answer is not what is expected: %w", address, err)
		}
		return false, nil
	})
}
