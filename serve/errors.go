// What goes wrong, said as each protocol says it.

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Error is an error with what a client is told: status, and the protocol's own words for it.
type Error struct {
	Status  int
	Type    string // OpenAI's: invalid_request_error, authentication_error, rate_limit_error, server_error, …
	Code    string // such as model_not_found; may be empty
	Param   string // the field at fault; may be empty
	Message string
	After   time.Duration // Retry-After; 0: none
	Cause   string        // Anthropic's error_code, by which its clients help themselves; may be empty
}

func (e *Error) Error() string { return e.Message }

// badRequest says that a field is wrong.
// In line it would be a tenth of a percent of the binary.
//
//go:noinline
func badRequest(param, message string) *Error {
	return &Error{Status: 400, Type: "invalid_request_error", Param: param, Message: message}
}

// unsupported says that a field asks for what is not there.
func unsupported(param, message string) *Error {
	return &Error{Status: 400, Type: "invalid_request_error", Code: "unsupported_parameter", Param: param,
		Message: message}
}

// why is the reason for which a context ended, where an error says no more than that it did.
func why(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return context.Cause(ctx)
}

// asError finds what to tell of an error.
func asError(err error) *Error {
	var e *Error
	var long *TooLong
	var full *Full
	var un *Unsupported
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &long):
		return &Error{Status: 400, Type: "invalid_request_error", Code: "context_length_exceeded",
			Param: "messages", Message: long.Error()}
	case errors.As(err, &full):
		return &Error{Status: 429, Type: "rate_limit_error", Code: "queue_full", Message: full.Error(), After: full.After}
	case errors.As(err, &un):
		return unsupported(un.Param, un.What)
	case errors.As(err, &big):
		return &Error{Status: 413, Type: "invalid_request_error", Code: "request_too_large",
			Message: "the body is larger than " + strconv.FormatInt(big.Limit, 10) + " bytes"}
	case errors.Is(err, ErrDevice):
		return &Error{Status: 503, Type: "server_error", Code: "device_lost", Message: err.Error(), After: 5 * time.Second}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: 408, Type: "timeout_error", Code: "timeout", Message: "the request took longer than it may"}
	case errors.Is(err, context.Canceled), errors.Is(err, errGone):
		return &Error{Status: 499, Type: "server_error", Code: "cancelled", Message: "the request was cancelled"}
	}
	return &Error{Status: 500, Type: "server_error", Code: "internal_error", Message: err.Error()}
}

// tooLongAt names the field whose text is too long, which each route calls otherwise.
func tooLongAt(route string, err error) error {
	var long *TooLong
	if !errors.As(err, &long) {
		return err
	}
	e := *asError(err)
	switch route {
	case "/v1/completions":
		e.Param = "prompt"
	case "/v1/responses":
		e.Param = "input"
	}
	return &e
}

// openAIError is the object of OpenAI's protocol. Its four fields are always there.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (e *Error) openAI() openAIError {
	return openAIError{Message: e.Message, Type: e.Type, Param: orNull(e.Param), Code: orNull(e.Code)}
}

// anthropicDetails name an error's cause to the protocol's clients.
type anthropicDetails struct {
	Code string `json:"error_code"`
}

// anthropicError is the object of Anthropic's protocol.
type anthropicError struct {
	Type  string `json:"type"` // error
	Error struct {
		Type    string            `json:"type"`
		Message string            `json:"message"`
		Details *anthropicDetails `json:"details,omitempty"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

func (e *Error) anthropic(id string) anthropicError {
	kinds := map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
		404: "not_found_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
		503: "overloaded_error", 529: "overloaded_error"}
	out := anthropicError{Type: "error", RequestID: id}
	if out.Error.Type = kinds[e.Status]; out.Error.Type == "" {
		if out.Error.Type = "api_error"; e.Status < 500 {
			out.Error.Type = "invalid_request_error"
		}
	}
	if out.Error.Message = e.Message; e.Cause != "" {
		out.Error.Details = &anthropicDetails{e.Cause}
	}
	return out
}

// protocol is how a route speaks.
type protocol int

const (
	openAI protocol = iota
	anthropic
)

// writeError answers with an error, where nothing was answered yet.
func writeError(w http.ResponseWriter, p protocol, id string, err error) {
	e := asError(err)
	if e.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int((e.After+time.Second-1)/time.Second))))
	}
	if e.Status == 401 {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	status := e.Status
	if status == 499 { // nobody reads it; HTTP has no such status
		status = 408
	}
	if p == anthropic {
		writeJSON(w, status, e.anthropic(id))
		return
	}
	writeJSON(w, status, struct {
		Error openAIError `json:"error"`
	}{e.openAI()})
}

// writeJSON answers with one JSON value.
func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = 500,
			[]byte(`{"error":{"message":"the answer cannot be written as JSON","type":"server_error","param":null,"code":null}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	w.Write(data)
}
