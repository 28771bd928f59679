// The client: requests, streams, and prompts of a wanted length.

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// body makes a request's body, and says how many tokens its answer is to have.
func (r *runner) body(rng *rand.Rand, i int) ([]byte, int) {
	text, want := "", r.opt.Output
	if n := len(r.opt.Data); n > 0 {
		p := r.opt.Data[i%n]
		if text = p.Text; p.Max > 0 {
			want = p.Max
		}
	} else {
		text = words(rng, max(1, int((float64(r.opt.Input)-r.extra)/r.words+0.5)))
	}
	return r.request(text, want, true), want
}

func (r *runner) request(text string, tokens int, stream bool) []byte {
	q := map[string]any{"model": r.opt.Model, "max_tokens": tokens, "temperature": 0.0}
	if r.opt.Chat {
		q["messages"] = []map[string]string{{"role": "user", "content": text}}
	} else {
		q["prompt"] = text
	}
	if !r.opt.NoEnd {
		q["ignore_eos"] = true
	}
	if stream {
		q["stream"], q["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	for k, v := range r.opt.Extra {
		q[k] = v
	}
	data, err := json.Marshal(q)
	if err != nil {
		panic(err) // of numbers and texts
	}
	return data
}

// words makes a text of so many words that no cache has seen.
func words(rng *rand.Rand, n int) string {
	const syllables = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re " +
		"ri ro ru sa se si so su ta te ti to tu"
	list := strings.Fields(syllables)
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[rng.IntN(len(list))])
		b.WriteString(list[rng.IntN(len(list))])
	}
	return b.String()
}

func (r *runner) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.opt.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.opt.Key)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != 200 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 400))
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, printed(bytes.TrimSpace(text)))
	}
	return resp, nil
}

// printed gives a server's words as they are, or quoted where they would steer a terminal.
func printed(text []byte) string {
	if !utf8.Valid(text) || bytes.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' }) {
		return strconv.Quote(string(text))
	}
	return string(text)
}

// mostAnswer bounds an answer that is no stream, and mostRest what is read behind the end of a stream.
const (
	mostAnswer = 32 << 20
	mostRest   = 64 << 10
)

// call asks once and reads a JSON answer. It has a request's time.
func (r *runner) call(ctx context.Context, method, path string, body []byte, into any) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	err := r.callOnce(ctx, method, path, body, into)
	if err != nil && ctx.Err() != nil && outer.Err() == nil {
		return fmt.Errorf("%s %s: no answer within %v", method, path, r.opt.Timeout)
	}
	return err
}

func (r *runner) callOnce(ctx context.Context, method, path string, body []byte, into any) error {
	resp, err := r.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	if err != nil {
		return err
	}
	if len(data) > mostAnswer {
		return fmt.Errorf("%s %s: the answer has more than %d bytes", method, path, mostAnswer)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not what is expected: %w", method, path, err)
	}
	return nil
}

type usage struct {
	Prompt int `json:"prompt_tokens"`
	Tokens int `json:"completion_tokens"`
}

// mostTokens is more than a word of four letters and a blank has.
const mostTokens = 16

// prepare finds the model, and how many tokens a word has.
func (r *runner) prepare(ctx context.Context) error {
	if r.opt.Model == "" {
		var list struct{ Data []struct{ ID string } }
		if err := r.call(ctx, "GET", "/v1/models", nil, &list); err != nil {
			return err
		}
		if len(list.Data) == 0 {
			return fmt.Errorf("%s lists no models", r.opt.URL)
		}
		r.opt.Model = list.Data[0].ID
	}
	var tokens struct{ Count int }
	probe, _ := json.Marshal(map[string]string{"model": r.opt.Model, "prompt": "a b"})
	r.tokens = r.call(ctx, "POST", "/tokenize", probe, &tokens) == nil && tokens.Count > 0
	if len(r.opt.Data) > 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(r.opt.Seed, 99))
	lengths := [2]int{8, max(16, r.opt.Input/2)}
	var counts [2]float64
	for i, n := range lengths {
		var a struct{ Usage usage }
		if err := r.call(ctx, "POST", r.path(), r.request(words(rng, n), 1, false), &a); err != nil {
			return fmt.Errorf("the first request failed: %w", err)
		}
		if a.Usage.Prompt == 0 {
			return fmt.Errorf("%s says nothing of usage.prompt_tokens: the size of prompts is unknown", r.opt.URL)
		}
		counts[i] = float64(a.Usage.Prompt)
	}
	r.words = (counts[1] - counts[0]) / float64(lengths[1]-lengths[0])
	if r.words <= 0 {
		return fmt.Errorf("%d words have %v tokens, %d have %v: the server counts no tokens of prompts",
			lengths[0], counts[0], lengths[1], counts[1])
	}
	if r.words > mostTokens {
		return fmt.Errorf("%d words have %v tokens, %d have %v: no tokenizer makes so many of words of four letters",
			lengths[0], counts[0], lengths[1], counts[1])
	}
	r.extra = max(0, counts[0]-r.words*float64(lengths[0]))
	return nil
}

// chunk is what a stream's event may hold.
type chunk struct {
	Choices []struct {
		Text  string
		Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
			Tools     []any  `json:"tool_calls"`
		}
		Finish string `json:"finish_reason"`
	}
	Usage *usage
	Error *struct{ Message string }
}

// ask sends a request and reads its stream.
func (r *runner) ask(ctx context.Context, start time.Time, body []byte) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	o.sent = time.Since(start)
	resp, err := r.send(ctx, "POST", r.path(), body)
	if err != nil {
		o.err = err
		return o
	}
	defer resp.Body.Close()
	var text strings.Builder
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(make([]byte, 0, 16<<10), 16<<20)
	done := false
	for scan.Scan() {
		data, ok := bytes.CutPrefix(scan.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			done = true
			break
		}
		now := time.Since(start)
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			o.err = fmt.Errorf("an event is not JSON: %w: %s", err, printed(data[:min(len(data), 200)]))
			return o
		}
		if c.Error != nil {
			o.err = fmt.Errorf("the stream ended with an error: %s", printed([]byte(c.Error.Message)))
			return o
		}
		if c.Usage != nil {
			o.prompt, o.tokens = c.Usage.Prompt, c.Usage.Tokens
		}
		for _, ch := range c.Choices {
			piece := ch.Text + ch.Delta.Content + ch.Delta.Reasoning
			if ch.Finish != "" {
				o.finish = ch.Finish
			}
			if piece == "" && len(ch.Delta.Tools) == 0 {
				continue
			}
			if o.chunks++; o.chunks == 1 {
				o.first = now
			} else {
				o.gaps = append(o.gaps, now-o.last)
			}
			o.last = now
			o.bytes += len(piece)
			text.WriteString(piece)
		}
	}
	if err := scan.Err(); err != nil {
		o.err = err
	} else if !done {
		o.err = fmt.Errorf("the stream ended without [DONE] behind %d chunks", o.chunks)
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, mostRest)) // so that the connection is used again
	o.text = text.String()
	return o
}
