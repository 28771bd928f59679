// A model that answers by rules, at the speed that a test wants.

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	fakeBOS = 256
	fakeEnd = 257
)

// fakeText has a token for each byte, a begin and an end.
type fakeText struct{}

func (fakeText) Encode(text string, bos, _ bool) ([]int32, error) {
	var ids []int32
	if bos {
		ids = append(ids, fakeBOS)
	}
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids, nil
}

func (t fakeText) EncodeChat(text string) ([]int32, error) { return t.Encode(text, false, true) }

func (t fakeText) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 256 {
			b.WriteByte(byte(id))
		}
	}
	return b.String()
}

func (t fakeText) Decoder([]int32) Decoder { return &fakeDecoder{} }
func (fakeText) Control(id int32) bool     { return id >= 256 }
func (fakeText) End(id int32) bool         { return id == fakeEnd }
func (fakeText) Ends() []int32             { return []int32{fakeEnd} }
func (fakeText) Vocabulary() int           { return 258 }
func (t fakeText) Piece(id int32) string {
	switch id {
	case fakeBOS:
		return "<s>"
	case fakeEnd:
		return "</s>"
	}
	return t.Decode([]int32{id})
}

// fakeDecoder holds bytes back until they are characters.
type fakeDecoder struct{ held string }

func (d *fakeDecoder) Write(id int32) string {
	if id >= 256 {
		return ""
	}
	d.held += string([]byte{byte(id)})
	if strings.ToValidUTF8(d.held, "") != d.held && len(d.held) < 4 {
		return ""
	}
	return d.Flush()
}

func (d *fakeDecoder) Flush() string {
	out := d.held
	d.held = ""
	return out
}

// fakeChat writes a line for each message. Answers may have <think>…</think> and <call>{…}</call>.
type fakeChat struct{}

func (fakeChat) Prompt(messages []Message, o ChatOptions) (string, error) {
	var b strings.Builder
	for _, t := range o.Tools {
		fmt.Fprintf(&b, "tool %s\n", t.Name)
	}
	for i, m := range messages {
		if m.Role == "system" && i > 0 {
			return "", errors.New("system messages come first")
		}
		fmt.Fprintf(&b, "%s: %s", m.Role, m.Content)
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, " [%s %s %s]", c.ID, c.Name, c.Arguments)
		}
		if i < len(messages)-1 || !o.Continue {
			b.WriteByte('\n')
		}
	}
	if o.Effort != "" {
		fmt.Fprintf(&b, "effort %s\n", o.Effort)
	}
	if !o.Continue {
		b.WriteString("assistant: ")
	}
	return b.String(), nil
}

func (fakeChat) Sees(string) bool                       { return false }
func (fakeChat) Tools() bool                            { return true }
func (fakeChat) Reasoning() bool                        { return true }
func (fakeChat) Parser(string, ChatOptions) Parser      { return &fakeParser{} }
func (fakeChat) Thoughts(string, ChatOptions) [2]string { return [2]string{} }
func (fakeChat) ToolMask(tools []Tool, must, _ bool) (Constraint, error) {
	if !must {
		return Constraint{}, errors.New("calls are free")
	}
	return Constraint{Choice: []string{tools[0].Name}}, nil
}

// fakeParser keeps a text until a mark is complete.
type fakeParser struct {
	held  string
	state string // "", think, call
	calls int
}

func (p *fakeParser) Write(text string) (out []Part) {
	p.held += text
	for {
		mark := map[string]string{"": "<", "think": "</think>", "call": "</call>"}[p.state]
		at := strings.Index(p.held, mark)
		switch {
		case p.state == "" && at >= 0:
			if at > 0 {
				out = append(out, Part{Text: p.held[:at]})
				p.held = p.held[at:]
				continue
			}
			switch {
			case strings.HasPrefix(p.held, "<think>"):
				p.state, p.held = "think", p.held[len("<think>"):]
			case strings.HasPrefix(p.held, "<call>"):
				p.state, p.held = "call", p.held[len("<call>"):]
			case strings.HasPrefix("<think>", p.held), strings.HasPrefix("<call>", p.held):
				return out
			default:
				out = append(out, Part{Text: p.held[:1]})
				p.held = p.held[1:]
			}
		case p.state == "" && p.held != "":
			out = append(out, Part{Text: p.held})
			p.held = ""
			return out
		case p.state == "think" && at >= 0:
			if at > 0 {
				out = append(out, Part{Reasoning: p.held[:at]})
			}
			p.state, p.held = "", p.held[at+len(mark):]
		case p.state == "think" && len(p.held) > len(mark):
			n := len(p.held) - len(mark)
			out = append(out, Part{Reasoning: p.held[:n]})
			p.held = p.held[n:]
			return out
		case p.state == "call" && at >= 0:
			var c struct {
				Name      string
				Arguments json.RawMessage
			}
			if json.Unmarshal([]byte(p.held[:at]), &c) == nil {
				args := string(c.Arguments)
				out = append(out, Part{Call: &CallPart{Index: p.calls, Name: c.Name}},
					Part{Call: &CallPart{Index: p.calls, Arguments: args[:len(args)/2]}},
					Part{Call: &CallPart{Index: p.calls, Arguments: args[len(args)/2:]}})
				p.calls++
			}
			p.state, p.held = "", p.held[at+len(mark):]
		default:
			return out
		}
	}
}

func (p *fakeParser) End() []Part {
	if p.held == "" {
		return nil
	}
	out := []Part{{Text: p.held}}
	if p.state == "think" {
		out = []Part{{Reasoning: p.held}}
	}
	p.held = ""
	return out
}

// fakeMask carries a constraint to the fake.
type fakeMask struct{ Constraint }

func (fakeMask) Allowed([]uint32) error { return nil }
func (fakeMask) Accept(int32) error     { return nil }
func (fakeMask) Forced() []int32        { return nil }

// fakeModel answers by rules: see fakeAnswer.
type fakeModel struct {
	delay   time.Duration // between tokens
	plain   bool          // says of a context that ended no more than that it did
	context int
	chat    Chat
	fail    atomic.Pointer[error] // of the next Generate
	running atomic.Int64
	made    atomic.Int64 // tokens
	closed  atomic.Bool
	mu      sync.Mutex
	last    Request
}

func newFake() *fakeModel { return &fakeModel{context: 100000, chat: fakeChat{}} }

func (m *fakeModel) Info() Info {
	return Info{Name: "fake", Root: "fake", Device: "none", Context: m.context, Rows: 8, Created: time.Unix(1, 0)}
}
func (m *fakeModel) Text() Tokens { return fakeText{} }
func (m *fakeModel) Chat() Chat   { return m.chat }
func (m *fakeModel) Close() error { m.closed.Store(true); return nil }
func (m *fakeModel) Stats() Stats {
	n := int(m.running.Load())
	return Stats{Running: n, Pages: 100, PagesUsed: n, LastRows: n, Steps: uint64(m.made.Load()),
		StepRows:  uint64(m.made.Load()),
		CacheType: "f16", PageSize: 16, PrefixQueries: 10, PrefixHits: 4, Waiting: 1, AcceptedAt: []int{7, 3, 0},
		Adapters: []string{"a", "b", "c"}, AdaptersRunning: []string{"b", "a"}, AdaptersWaiting: []string{"a"},
		WaitingBy: map[string]int{"capacity": 1}, StepTimes: map[int]time.Duration{96: 12 * time.Millisecond}}
}

func (m *fakeModel) Constrain(c Constraint) (func() (Mask, error), error) {
	if strings.Contains(string(c.Schema), "unsupportedKeyword") {
		return nil, &Unsupported{"response_format", "the schema's unsupportedKeyword cannot be honoured"}
	}
	return func() (Mask, error) { return fakeMask{c}, nil }, nil
}

func (m *fakeModel) lastRequest() Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (m *fakeModel) Generate(ctx context.Context, r Request) (Answer, error) {
	if e := m.fail.Load(); e != nil {
		return nil, *e
	}
	if err := fits(&r, m.context); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.last = r
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	return &fakeRun{m: m, ctx: ctx, cancel: cancel, r: r}, nil
}

type fakeRun struct {
	m      *fakeModel
	ctx    context.Context
	cancel func()
	r      Request
}

func (a *fakeRun) Cancel() { a.cancel() }
func (a *fakeRun) Result() Result {
	return Result{Prompt: len(a.r.Prompt), Cached: 2, Queue: time.Millisecond, Prefill: 2 * time.Millisecond,
		Decode: 3 * time.Millisecond}
}

// Prompt thinks of each token that it was sure, by -0.25 times its place.
func (a *fakeRun) Prompt() (all []Token) {
	for i, id := range a.r.Prompt[1:] {
		t := Token{ID: id, Logprob: -0.25 * float32(i+1)}
		for k := range max(0, a.r.Logprobs) {
			t.Top = append(t.Top, TokenLogprob{(id + int32(k)) % 256, t.Logprob - float32(k)})
		}
		all = append(all, t)
	}
	return all
}

func (a *fakeRun) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		a.m.running.Add(1)
		defer a.m.running.Add(-1)
		prompt := fakeText{}.Decode(a.r.Prompt)
		var c *Constraint
		if a.r.Mask != nil {
			mask, err := a.r.Mask()
			if err != nil {
				yield(Token{}, err)
				return
			}
			own := mask.(fakeMask).Constraint
			c = &own
		}
		for choice := range max(1, a.r.Choices) {
			ids, _ := fakeText{}.Encode(fakeAnswer(prompt, choice, c), false, false)
			if !a.r.IgnoreEnd {
				ids = append(ids, fakeEnd)
			}
			for n := 0; n < a.r.Max; n++ {
				if a.m.delay > 0 {
					select {
					case <-time.After(a.m.delay):
					case <-a.ctx.Done():
					}
				}
				if err := context.Cause(a.ctx); err != nil {
					if a.m.plain {
						err = a.ctx.Err()
					}
					yield(Token{}, err)
					return
				}
				t := Token{Choice: choice, ID: ids[n%len(ids)], Logprob: -0.5}
				for k := range max(0, a.r.Logprobs) {
					t.Top = append(t.Top, TokenLogprob{(t.ID + int32(k)) % 256, -0.5 - float32(k)})
				}
				a.m.made.Add(1)
				if !yield(t, nil) {
					return
				}
				if t.ID == fakeEnd {
					break
				}
			}
		}
	}
}

// fakeAnswer: "say X" says X; "think" thinks before; "call F {…}" calls a tool; behind a tool's result it tells it;
// "fail" panics; anything else is told back.
func fakeAnswer(prompt string, choice int, c *Constraint) string {
	if c != nil {
		switch {
		case c.Schema != nil:
			return string(instance(c.Schema))
		case c.JSON:
			return `{"ok": true}`
		case len(c.Choice) > 0:
			if strings.Contains(prompt, "tool "+c.Choice[0]+"\n") {
				return `<call>{"name": "` + c.Choice[0] + `", "arguments": {"city": "Paris"}}</call>`
			}
			return c.Choice[0]
		}
		return "0000"
	}
	prompt = strings.TrimSuffix(prompt, "assistant: ")
	lines := strings.Split(strings.TrimSpace(prompt), "\n")
	last := lines[len(lines)-1]
	if strings.HasPrefix(last, "effort ") && len(lines) > 1 {
		last = lines[len(lines)-2]
	}
	if result, ok := strings.CutPrefix(last, "tool: "); ok {
		return "The tool said " + result
	}
	said := strings.TrimPrefix(last, "user: ")
	verb, rest, _ := strings.Cut(said, " ")
	switch verb {
	case "say":
		return strings.ReplaceAll(rest, "\x01", "\n")
	case "think":
		return "<think>Let me see: " + rest + "</think>It is " + rest
	case "call":
		name, args, _ := strings.Cut(rest, " ")
		return `Let me look. <call>{"name": "` + name + `", "arguments": ` + args + `}</call>`
	case "twice":
		return `<call>{"name": "f", "arguments": {"a": 1}}</call><call>{"name": "g", "arguments": {"b": 2}}</call>`
	case "panic":
		panic("asked to")
	}
	return fmt.Sprintf("You said: %s (%d)", said, choice)
}

// instance makes a value of a simple schema.
func instance(schema json.RawMessage) json.RawMessage {
	var s struct {
		Type       string
		Enum       []json.RawMessage
		Properties map[string]json.RawMessage
		Items      json.RawMessage
	}
	if json.Unmarshal(schema, &s) != nil {
		return json.RawMessage("null")
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	switch s.Type {
	case "object":
		var names []string
		for n := range s.Properties {
			names = append(names, n)
		}
		sort.Strings(names)
		var b strings.Builder
		b.WriteByte('{')
		for i, n := range names {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q: %s", n, instance(s.Properties[n]))
		}
		b.WriteByte('}')
		return json.RawMessage(b.String())
	case "array":
		return json.RawMessage("[" + string(instance(s.Items)) + "]")
	case "integer", "number":
		return json.RawMessage("7")
	case "boolean":
		return json.RawMessage("true")
	}
	return json.RawMessage(`"text"`)
}

// testServer serves a model on loopback.
func testServer(t testing.TB, m Model, change ...func(*Options)) (*Server, *httptest.Server) {
	t.Helper()
	load := func(context.Context, Spec) (Model, error) { return m, nil }
	manager, err := NewManager([]Spec{{Name: "fake", Path: "fake", Aliases: []string{"gpt-4o"}, Preload: true}}, load, 0,
		0,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Models: manager, Version: "test"}
	for _, c := range change {
		c(&opt)
	}
	if err := opt.Models.Preload(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h
}
