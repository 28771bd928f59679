// Models of vectors and scores: /v1/embeddings as OpenAI has it, /rerank and /score as vLLM does.

package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/embedding"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/models"
)

// TextModel is a Model that gives vectors or scores of texts and continues none.
type TextModel struct {
	*embedding.Model
	TextInfo Info
	Tokens   Tokens
	Free     func() error // what Close does
}

// Info is what it says of itself.
func (m *TextModel) Info() Info { return m.TextInfo }

// Text turns text into tokens.
func (m *TextModel) Text() Tokens { return m.Tokens }

// Chat is nil: it holds no conversations.
func (m *TextModel) Chat() Chat { return nil }

// Stats are empty: requests run one behind the other.
func (m *TextModel) Stats() Stats { return Stats{} }

// Close frees it.
func (m *TextModel) Close() error { return m.Free() }

// Constrain refuses.
func (m *TextModel) Constrain(Constraint) (func() (Mask, error), error) {
	return nil, m.refuse()
}

// Generate refuses.
func (m *TextModel) Generate(context.Context, Request) (Answer, error) { return nil, m.refuse() }

func (m *TextModel) refuse() error {
	return cannot(m.TextInfo.Name, "continuing texts", "model", m.does())
}

func (m *TextModel) does() string {
	if m.Task() == models.Score {
		return "it gives scores of texts (/rerank, /score)"
	}
	return "it gives vectors of texts (/v1/embeddings)"
}

// cannot refuses a task that the model was not made for.
func cannot(name, task, param, does string) error {
	return &Error{Status: 400, Type: "invalid_request_error", Code: "unsupported_model", Param: param,
		Message: "The model `" + name + "` does not support " + task + "; " + does}
}

// useTexts finds the model of texts that a request names.
func (s *Server) useTexts(r *http.Request, rs *requestState, name, task string) (*TextModel, func(), error) {
	model, release, err := s.use(r, rs, name)
	if err != nil {
		return nil, nil, err
	}
	if m, ok := model.(*TextModel); ok {
		return m, release, nil
	}
	release()
	return nil, nil, cannot(rs.model, task, "model", "it continues texts")
}

// textError says what is wrong with texts in the protocol's words.
func textError(param string, err error) error {
	var long *embedding.TooLong
	switch {
	case errors.As(err, &long):
		return &Error{Status: 400, Type: "invalid_request_error", Code: "context_length_exceeded", Param: param,
			Message: long.Error() + "; shorten it, or send truncate_prompt_tokens"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrDevice):
		return err
	}
	return badRequest(param, err.Error())
}

// truncation reads truncate_prompt_tokens: -1 is what the model takes.
func truncation(n *int) (int, error) {
	switch {
	case n == nil:
		return 0, nil
	case *n == -1 || *n > 0:
		return *n, nil
	}
	return 0, badRequest("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or positive")
}

// mostTexts is how many texts one request has at most, as OpenAI has it.
const mostTexts = 2048

// spendTexts is the accounting of a request of so many tokens.
func (s *Server) spendTexts(rs *requestState, tokens int) {
	s.keys.spend(rs.key, tokens)
	s.metrics.prompt.add(tokens, engineLabel, rs.model)
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Format     string          `json:"encoding_format"`
		Dimensions *int            `json:"dimensions"`
		User       string          `json:"user"`
		Truncate   *int            `json:"truncate_prompt_tokens"`
		Normalize  *bool           `json:"normalize"`
	}
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	inputs, err := embeddingInputs(q.Input)
	if err != nil {
		return err
	}
	if q.Format != "" && q.Format != "float" && q.Format != "base64" {
		return badRequest("encoding_format", fmt.Sprintf("encoding_format %q: there are float and base64",
			clip(q.Format, 50)))
	}
	o := embedding.Options{Normalize: q.Normalize == nil || *q.Normalize}
	if o.Truncate, err = truncation(q.Truncate); err != nil {
		return err
	}
	m, release, err := s.useTexts(r, rs, q.Model, "embeddings")
	if err != nil {
		return err
	}
	defer release()
	if m.Task() != models.Embed {
		return cannot(rs.model, "embeddings", "model", m.does())
	}
	if q.Dimensions != nil {
		if *q.Dimensions < 1 || *q.Dimensions > m.Width() {
			return badRequest("dimensions", fmt.Sprintf("dimensions must be between 1 and %d", m.Width()))
		}
		o.Dimensions = *q.Dimensions
	}
	for i, in := range inputs {
		if in.IDs != nil {
			if err := checkIDs("input["+strconv.Itoa(i)+"]", in.IDs, m.Text().Vocabulary()); err != nil {
				return err
			}
		}
	}
	if err := s.keys.admit(rs.key, len(inputs)); err != nil {
		return err
	}
	vectors, err := m.Embed(r.Context(), inputs, o)
	if err != nil {
		return textError("input", err)
	}
	type item struct {
		Object string `json:"object"`
		Index  int    `json:"index"`
		Values any    `json:"embedding"`
	}
	data, tokens := make([]item, len(vectors)), 0
	for i, v := range vectors {
		data[i] = item{"embedding", i, v.Values}
		if q.Format == "base64" {
			raw := make([]byte, 0, 4*len(v.Values))
			for _, x := range v.Values {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			data[i].Values = base64.StdEncoding.EncodeToString(raw)
		}
		tokens += v.Tokens
	}
	s.spendTexts(rs, tokens)
	writeJSON(w, 200, struct {
		Object string    `json:"object"`
		Data   []item    `json:"data"`
		Model  string    `json:"model"`
		Usage  textUsage `json:"usage"`
	}{"list", data, rs.model, textUsage{tokens, tokens}})
	return nil
}

// textUsage is what was read; nothing is written.
type textUsage struct {
	Prompt int `json:"prompt_tokens"`
	Total  int `json:"total_tokens"`
}

// embeddingInputs reads a string, an array of strings, of tokens, or of arrays of tokens. As with OpenAI none is empty.
func embeddingInputs(raw json.RawMessage) ([]embedding.Input, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, badRequest("input", "input is missing")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, badRequest("input", "input is an empty string")
		}
		return []embedding.Input{{Text: text}}, nil
	}
	if ids, ok := tokenIDs(raw); ok && len(ids) > 0 {
		return []embedding.Input{{IDs: ids}}, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, badRequest("input", "input must be a string, an array of strings, of tokens, or of arrays of tokens")
	}
	switch {
	case len(list) == 0:
		return nil, badRequest("input", "input is empty")
	case len(list) > mostTexts:
		return nil, badRequest("input", fmt.Sprintf("input has %d texts, %d are the most", len(list), mostTexts))
	}
	inputs := make([]embedding.Input, len(list))
	for i, item := range list {
		in := &inputs[i]
		at := "input[" + strconv.Itoa(i) + "]"
		if json.Unmarshal(item, &in.Text) == nil && string(item) != "null" {
			if in.Text == "" {
				return nil, badRequest(at, at+" is an empty string")
			}
			continue
		}
		var ok bool
		if in.IDs, ok = tokenIDs(item); !ok || len(in.IDs) == 0 {
			return nil, badRequest(at, "a string or an array of tokens is expected")
		}
	}
	return inputs, nil
}

// document is a text of rerank: a string, or an object with one.
type document struct{ Text string }

func (d *document) UnmarshalJSON(data []byte) error {
	var text *string
	var err error
	if len(data) > 0 && data[0] == '{' {
		var object struct{ Text *string }
		err = json.Unmarshal(data, &object)
		text = object.Text
	} else {
		err = json.Unmarshal(data, &text)
	}
	if err != nil || text == nil {
		return badRequest("documents", `documents: each is a string or an object with "text"`)
	}
	d.Text = *text
	return nil
}

func (s *Server) rerank(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q struct {
		Model     string     `json:"model"`
		Query     string     `json:"query"`
		Documents []document `json:"documents"`
		Top       *int       `json:"top_n"`
		Truncate  *int       `json:"truncate_prompt_tokens"`
		Return    *bool      `json:"return_documents"`
		User      string     `json:"user"`
	}
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	m, release, err := s.useTexts(r, rs, q.Model, "reranking")
	if err != nil {
		return err
	}
	defer release()
	switch {
	case q.Query == "":
		return badRequest("query", "query is missing")
	case len(q.Documents) == 0:
		return badRequest("documents", "documents is empty")
	case len(q.Documents) > mostTexts:
		return badRequest("documents", fmt.Sprintf("documents has %d texts, %d are the most", len(q.Documents), mostTexts))
	case q.Top != nil && *q.Top < 0:
		return badRequest("top_n", "top_n must not be negative")
	}
	queries, texts := make([]string, len(q.Documents)), make([]string, len(q.Documents))
	for i, d := range q.Documents {
		queries[i], texts[i] = q.Query, d.Text
	}
	scores, tokens, err := s.scores(r, rs, m, queries, texts, q.Truncate, "documents")
	if err != nil {
		return err
	}
	type result struct {
		Index    int               `json:"index"`
		Document map[string]string `json:"document,omitempty"`
		Score    float64           `json:"relevance_score"`
	}
	results := make([]result, len(scores))
	for i, sc := range scores {
		results[i] = result{Index: i, Score: sc.Value}
		if q.Return == nil || *q.Return {
			results[i].Document = map[string]string{"text": texts[i]}
		}
	}
	sorting.Sort(results, func(a, b result) int { return cmp.Compare(b.Score, a.Score) })
	if q.Top != nil && *q.Top > 0 && *q.Top < len(results) {
		results = results[:*q.Top]
	}
	writeJSON(w, 200, struct {
		ID      string    `json:"id"`
		Model   string    `json:"model"`
		Usage   textUsage `json:"usage"`
		Results []result  `json:"results"`
	}{newID("rerank-"), rs.model, textUsage{tokens, tokens}, results})
	return nil
}

// scores computes those of pairs, and their tokens.
func (s *Server) scores(r *http.Request, rs *requestState, m *TextModel, queries, texts []string, truncate *int,
	param string) ([]embedding.Score, int, error) {
	o := embedding.ScoreOptions{}
	var err error
	if o.Truncate, err = truncation(truncate); err != nil {
		return nil, 0, err
	}
	if err := s.keys.admit(rs.key, len(texts)); err != nil {
		return nil, 0, err
	}
	scores, err := m.Pairs(r.Context(), queries, texts, o)
	if err != nil {
		return nil, 0, textError(param, err)
	}
	tokens := 0
	for _, sc := range scores {
		tokens += sc.Tokens
	}
	s.spendTexts(rs, tokens)
	return scores, tokens, nil
}

// oneOrMore is a string or an array of them.
type oneOrMore []string

func (l *oneOrMore) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil && strings.TrimSpace(string(data)) != "null" {
		*l = oneOrMore{text}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

func (s *Server) score(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q struct {
		Model    string    `json:"model"`
		First    oneOrMore `json:"text_1"`
		Second   oneOrMore `json:"text_2"`
		Truncate *int      `json:"truncate_prompt_tokens"`
		User     string    `json:"user"`
	}
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	m, release, err := s.useTexts(r, rs, q.Model, "scores")
	if err != nil {
		return err
	}
	defer release()
	switch {
	case len(q.First) == 0:
		return badRequest("text_1", "text_1 is missing")
	case len(q.Second) == 0:
		return badRequest("text_2", "text_2 is missing")
	case len(q.Second) > mostTexts:
		return badRequest("text_2", fmt.Sprintf("text_2 has %d texts, %d are the most", len(q.Second), mostTexts))
	case len(q.First) != 1 && len(q.First) != len(q.Second):
		return badRequest("text_1", fmt.Sprintf("text_1 has %d texts and text_2 %d: one, or as many, are expected",
			len(q.First), len(q.Second)))
	}
	for len(q.First) < len(q.Second) {
		q.First = append(q.First, q.First[0])
	}
	scores, tokens, err := s.scores(r, rs, m, q.First, q.Second, q.Truncate, "text_2")
	if err != nil {
		return err
	}
	type item struct {
		Index  int     `json:"index"`
		Object string  `json:"object"`
		Score  float64 `json:"score"`
	}
	data := make([]item, len(scores))
	for i, sc := range scores {
		data[i] = item{i, "score", sc.Value}
	}
	writeJSON(w, 200, struct {
		ID      string    `json:"id"`
		Object  string    `json:"object"`
		Created int64     `json:"created"`
		Model   string    `json:"model"`
		Data    []item    `json:"data"`
		Usage   textUsage `json:"usage"`
	}{newID("score-"), "list", time.Now().Unix(), rs.model, data, textUsage{tokens, tokens}})
	return nil
}
