// POST /v1/completions: texts continued as they are.

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// completionRequest is OpenAI's, with vLLM's fields.
type completionRequest struct {
	Model     string          `json:"model"`
	Prompt    json.RawMessage `json:"prompt"`
	Suffix    string          `json:"suffix"`
	MaxTokens *int            `json:"max_tokens"`
	Echo      bool            `json:"echo"`
	BestOf    *int            `json:"best_of"`
	Logprobs  *int            `json:"logprobs"`
	samplingFields
	Format *responseFormat `json:"response_format"`
	AddBOS *bool           `json:"add_special_tokens"`
}

// prompts reads the four forms of a prompt: a text, texts, ids, lists of ids.
func (q *completionRequest) prompts(text Tokens) ([][]int32, error) {
	raw := bytes.TrimSpace(q.Prompt)
	bos := q.AddBOS == nil || *q.AddBOS
	encode := func(s string) ([]int32, error) {
		ids, err := text.Encode(s, bos, true)
		if err != nil {
			return nil, badRequest("prompt", err.Error())
		}
		return ids, nil
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, badRequest("prompt", "prompt is missing")
	}
	if raw[0] == '"' {
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, badRequest("prompt", err.Error())
		}
		ids, err := encode(one)
		return [][]int32{ids}, err
	}
	if ids, ok := tokenIDs(raw); ok {
		if len(ids) == 0 {
			return nil, badRequest("prompt", "prompt is an empty array")
		}
		return [][]int32{ids}, checkIDs("prompt", ids, text.Vocabulary())
	}
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) != nil {
		return nil, badRequest("prompt", "prompt must be a string, an array of strings, of tokens, or of arrays of tokens")
	}
	var out [][]int32
	for i, one := range many {
		at := fmt.Sprintf("prompt[%d]", i)
		var s string
		ids, isIDs := tokenIDs(one)
		switch {
		case json.Unmarshal(one, &s) == nil && one[0] == '"':
			var err error
			if ids, err = encode(s); err != nil {
				return nil, err
			}
		case isIDs:
			if err := checkIDs(at, ids, text.Vocabulary()); err != nil {
				return nil, err
			}
		default:
			return nil, badRequest(at, at+" must be a string or an array of tokens")
		}
		out = append(out, ids)
	}
	return out, nil
}

// checkIDs refuses what is no token.
func checkIDs(param string, ids []int32, vocabulary int) error {
	for _, id := range ids {
		if id < 0 || int(id) >= vocabulary {
			return badRequest(param, fmt.Sprintf("%s: %d is no token of this model, whose tokens are 0 to %d", param, id,
				vocabulary-1))
		}
	}
	return nil
}

// defaultMax is OpenAI's and vLLM's for completions.
const defaultMax = 16

// mostPrompts bounds the prompts of one request.
const mostPrompts = 256

// jobs makes a job of each prompt.
func (q *completionRequest) jobs(s *Server, model Model, h http.Header) ([]*job, error) {
	if m, ok := model.(*TextModel); ok {
		return nil, cannot(q.Model, "continuing texts", "model", m.does())
	}
	if q.Suffix != "" {
		return nil, unsupported("suffix", "this model does not fill in what lies before a suffix")
	}
	n := 1
	if q.N != nil {
		n = *q.N
	}
	if q.BestOf != nil && *q.BestOf != n {
		return nil, unsupported("best_of", "best_of other than n is not supported")
	}
	first := &job{model: model, name: q.Model}
	err := q.fill(s, first)
	if err != nil {
		return nil, err
	}
	if first.request.None = q.MaxTokens != nil && *q.MaxTokens == 0; first.request.None {
		first.request.Max = 1
	} else if first.request.Max, err = s.bound("max_tokens", q.MaxTokens, defaultMax); err != nil {
		return nil, err
	}
	if q.Logprobs != nil {
		if k := *q.Logprobs; k < 0 || k > 20 {
			return nil, badRequest("logprobs", fmt.Sprintf("logprobs must be between 0 and 20, it is %d", k))
		} else if first.request.Logprobs = k; k == 0 {
			first.request.Logprobs = -1
		}
		first.request.OfPrompt = q.Echo
	}
	if err := first.checkMin(); err != nil {
		return nil, err
	}
	c, param, err := q.constraint(q.Format)
	if err != nil {
		return nil, err
	}
	first.constrain(c, param)
	if err := first.compile(); err != nil {
		return nil, err
	}
	prompts, err := q.prompts(model.Text())
	if err != nil {
		return nil, err
	}
	if len(prompts) == 0 || len(prompts) > mostPrompts {
		return nil, badRequest("prompt", fmt.Sprintf("between 1 and %d prompts may be given, there are %d", mostPrompts,
			len(prompts)))
	}
	var jobs []*job
	for i, p := range prompts {
		j := *first
		if j.request.Prompt = p; len(p) == 0 {
			return nil, badRequest("prompt", fmt.Sprintf("prompt %d has no tokens", i))
		}
		jobs = append(jobs, &j)
	}
	return jobs, nil
}

// completionAnswer is an answer or a chunk of one.
type completionAnswer struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Created     int64              `json:"created"`
	Model       string             `json:"model"`
	Choices     []completionChoice `json:"choices"`
	Usage       *usageObject       `json:"usage,omitempty"`
	Fingerprint string             `json:"system_fingerprint,omitempty"`
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
	Stop     any                 `json:"stop_reason,omitempty"`
}

// completionLogprobs are four lists of equal length. What begins an echoed prompt has no log-probability: null.
type completionLogprobs struct {
	Tokens  []string             `json:"tokens"`
	Values  []*float32           `json:"token_logprobs"`
	Top     []map[string]float32 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

func newCompletionLogprobs() *completionLogprobs {
	return &completionLogprobs{Tokens: []string{}, Values: []*float32{}, Top: []map[string]float32{}, Offsets: []int{}}
}

// echo adds the prompt's tokens, of which those behind the first come with their log-probabilities. Control tokens are
// no part of the text that is echoed.
func (l *completionLogprobs) echo(j *job, behind []Token, offset *int) {
	text, first := j.model.Text(), j.request.Prompt[0]
	l.Tokens, l.Values, l.Top = append(l.Tokens, text.Piece(first)), append(l.Values, nil), append(l.Top, nil)
	l.Offsets = append(l.Offsets, *offset)
	if !text.Control(first) {
		*offset += len([]rune(text.Piece(first)))
	}
	for i := range behind {
		at := *offset
		if l.add(j, behind[i:i+1], offset); text.Control(behind[i].ID) {
			*offset = at
		}
	}
}

// add adds tokens of the answer.
func (l *completionLogprobs) add(j *job, tokens []Token, offset *int) {
	text := j.model.Text()
	for _, t := range tokens {
		piece, value := text.Piece(t.ID), finite(t.Logprob)
		l.Tokens, l.Values = append(l.Tokens, piece), append(l.Values, &value)
		top := map[string]float32{}
		for _, x := range t.Top {
			if p := text.Piece(x.ID); top[p] == 0 {
				top[p] = finite(x.Logprob)
			}
		}
		if len(t.Top) > 0 {
			top[piece] = value
		}
		l.Top, l.Offsets = append(l.Top, top), append(l.Offsets, *offset)
		*offset += len([]rune(piece))
	}
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q completionRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Model == "" {
		q.Model = rs.model
	}
	jobs, err := q.jobs(s, model, w.Header())
	if err != nil {
		return err
	}
	head := completionAnswer{ID: newID("cmpl-"), Object: "text_completion", Created: timeNow().Unix(), Model: q.Model,
		Fingerprint: s.fingerprint()}
	if q.Stream {
		return s.streamCompletions(w, r, rs, jobs, &q, head)
	}
	var total usage
	head.Choices = make([]completionChoice, 0, len(jobs))
	type result struct {
		all []*made
		u   usage
		err error
	}
	results := make([]result, len(jobs))
	each(len(jobs), func(i int) {
		s.logPrompt(rs, jobs[i])
		results[i].all, results[i].u, results[i].err = s.collect(r, rs, jobs[i])
	})
	for i, res := range results {
		if res.err != nil {
			return res.err
		}
		total.add(res.u)
		for _, m := range res.all {
			c := completionChoice{Index: len(head.Choices), Text: m.text.String(), Finish: &m.finish}
			offset := 0
			if q.Echo {
				c.Text = model.Text().Decode(jobs[i].request.Prompt) + c.Text
			}
			if m.stop != "" {
				c.Stop = m.stop
			}
			if q.Logprobs != nil {
				c.Logprobs = newCompletionLogprobs()
				if q.Echo {
					c.Logprobs.echo(jobs[i], m.prompt, &offset)
				}
				c.Logprobs.add(jobs[i], m.tokens, &offset)
			}
			head.Choices = append(head.Choices, c)
		}
	}
	head.Usage = total.openAI()
	writeJSON(w, 200, head)
	return nil
}

func (u *usage) add(v usage) {
	u.prompt += v.prompt
	u.cached += v.cached
	u.completion += v.completion
	u.reasoning += v.reasoning
}

// streamCompletions streams the prompts' answers, one prompt behind the other where there are several.
func (s *Server) streamCompletions(w http.ResponseWriter, r *http.Request, rs *requestState, jobs []*job,
	q *completionRequest, head completionAnswer) error {
	out := s.newSSE(w)
	var total usage
	var running *usage
	if q.StreamOptions != nil && q.StreamOptions.ContinuousUsage {
		running = &usage{}
		for _, j := range jobs {
			running.prompt += len(j.request.Prompt)
		}
	}
	for i, j := range jobs {
		n := max(1, j.request.Choices)
		offsets := make([]int, n)
		begun := make([]bool, n)
		u, err := s.stream(r.Context(), rs, j, func(ev event) error {
			running.count(ev)
			c := completionChoice{Index: i*n + ev.choice, Finish: orNull(ev.finish)}
			if q.Logprobs != nil && (ev.token != nil || q.Echo && !begun[ev.choice]) {
				c.Logprobs = newCompletionLogprobs()
			}
			if q.Echo && !begun[ev.choice] {
				c.Text = j.model.Text().Decode(j.request.Prompt)
				if c.Logprobs != nil {
					c.Logprobs.echo(j, ev.prompt, &offsets[ev.choice])
				}
			}
			begun[ev.choice] = true
			for _, p := range ev.parts {
				c.Text += p.Text
			}
			if ev.stop != "" {
				c.Stop = ev.stop
			}
			if q.Logprobs != nil && ev.token != nil {
				c.Logprobs.add(j, []Token{*ev.token}, &offsets[ev.choice])
			}
			if c.Text == "" && c.Finish == nil && c.Logprobs == nil {
				return nil
			}
			head.Choices = append(head.Choices[:0], c)
			if running != nil {
				head.Usage = running.openAI()
			}
			return out.event("", &head)
		}, out.flush)
		if err != nil {
			return s.failStream(rs, out, err)
		}
		total.add(u)
		if i+1 < len(jobs) {
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
	if q.StreamOptions != nil && q.StreamOptions.IncludeUsage {
		head.Choices, head.Usage = []completionChoice{}, total.openAI()
		if err := out.event("", &head); err != nil {
			return err
		}
	}
	return out.done()
}
