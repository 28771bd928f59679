package hub

// Requests: errors of servers, waiting and trying again.

import (
	"context"
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

// request sends one. The token goes to the endpoint alone: the client drops it where a redirection leaves the host.
func (h *Hub) request(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
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
	r, err := h.Client.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.IsNotFound {
			return nil, fmt.Errorf("%s is not reached: %w", q.URL.Host, err)
		}
		return nil, &later{err: err}
	}
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
