package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/serve"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
)

// client is the other side of a server.
type client struct {
	t    *testing.T
	to   io.WriteCloser
	from io.Reader
	done chan error
	id   uint64
}

type reply struct {
	ID      uint64          `json:"id"`
	Event   json.RawMessage `json:"event"`
	OK      json.RawMessage `json:"ok"`
	Error   *Error          `json:"error"`
	payload []byte
}

// start begins a server and greets it.
func start(t *testing.T, opt Options) *client {
	c := bare(t, opt)
	r := c.ask("hello", map[string]any{"protocol": Protocol, "client": "test", "shared": sharing})
	if r.Error != nil || !strings.Contains(string(r.OK), `"ops":["attach",`) {
		t.Fatalf("hello: %+v", r)
	}
	return c
}

func bare(t *testing.T, opt Options) *client {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	c := &client{t: t, to: to, from: from, done: make(chan error, 1)}
	if opt.Load == nil {
		opt.Load = loadTest
	}
	go func() {
		c.done <- Serve(t.Context(), in, out, opt)
		out.Close()
	}()
	t.Cleanup(func() { to.Close() })
	return c
}

func (c *client) send(op string, args any, payload ...byte) uint64 {
	c.t.Helper()
	c.id++
	a, err := json.Marshal(args)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(framed(fmt.Sprintf(`{"id":%d,"op":%q,"args":%s}`, c.id, op, a), payload))
	return c.id
}

func (c *client) write(data []byte) {
	c.t.Helper()
	if _, err := c.to.Write(data); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) next() reply {
	c.t.Helper()
	f, err := readFrame(c.from)
	if err != nil {
		c.t.Fatal(err)
	}
	r := reply{payload: f.payload}
	if err := json.Unmarshal(f.header, &r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// ask sends a request and gives its end; events on the way are skipped.
func (c *client) ask(op string, args any, payload ...byte) reply {
	c.t.Helper()
	id := c.send(op, args, payload...)
	for {
		if r := c.next(); r.ID == id && r.Event == nil {
			return r
		}
	}
}

// must is ask that must succeed.
func (c *client) must(op string, args, into any, payload ...byte) reply {
	c.t.Helper()
	r := c.ask(op, args, payload...)
	if r.Error != nil {
		c.t.Fatalf("%s: %s: %s", op, r.Error.Code, r.Error.Message)
	}
	if into != nil {
		if err := json.Unmarshal(r.OK, into); err != nil {
			c.t.Fatal(err)
		}
	}
	return r
}

// refused is ask that must fail with a code and words.
func (c *client) refused(code, words, op string, args any, payload ...byte) {
	c.t.Helper()
	r := c.ask(op, args, payload...)
	if r.Error == nil || r.Error.Code != code || !strings.Contains(r.Error.Message, words) {
		c.t.Errorf("%s: %+v, expected is %s: …%s…", op, r.Error, code, words)
	}
}

// close ends the stream and gives the server's error.
func (c *client) close() error {
	c.t.Helper()
	c.to.Close()
	go io.Copy(io.Discard, c.from)
	select {
	case err := <-c.done:
		return err
	case <-time.After(30 * time.Second):
		c.t.Fatal("the server does not end with its stream")
		return nil
	}
}

// testModel is a model on the processor.
type testModel struct {
	e      *engine.Engine
	text   *tokenizer.Tokenizer
	source weights.Source
	dev    *cpu.Device
	info   Info
	closed *bool
}

// lastGPU is the device of the model that was loaded last by a path that begins with "gpu:".
var lastGPU *gpu

var errBroken = errors.New("broken")

// loadTest loads testdata's model, or a small block by the path "block"; "broken" and "panics" do as they say.
func loadTest(ctx context.Context, path string, _ map[string]json.RawMessage) (_ Model, err error) {
	m := &testModel{closed: new(bool)}
	opt := engine.Options{Context: 256, KV: tensor.F32}
	name, onGPU := strings.CutPrefix(path, "gpu:")
	switch path {
	case "broken":
		return nil, errBroken
	case "panics":
		panic("on purpose")
	case "block", "gpu:mlp_block", "gpu:llama2_block":
		if path == "block" {
			name = "mlp_block"
		}
		if opt.Model, err = models.Builtin(name); err != nil {
			return nil, err
		}
		opt.Set = map[string]string{"D": "64", "F": "128"}
		if name == "llama2_block" {
			opt.Set["H"], opt.Set["G"] = "4", "2"
		}
	default:
		if m.source, err = open.Open(path); err != nil {
			return nil, err
		}
		if opt.Model, err = models.Match(m.source); err != nil {
			return nil, err
		}
		if m.text, err = tokenizer.Load(path); err != nil {
			return nil, err
		}
		opt.Source = m.source
	}
	if m.dev, err = cpu.New(1); err != nil {
		return nil, err
	}
	opt.Device = m.dev
	if onGPU {
		lastGPU = &gpu{Device: m.dev, memory: map[uint64]backends.Buffer{}}
		opt.Device = lastGPU
	}
	if m.e, err = engine.New(ctx, opt); err != nil {
		return nil, err
	}
	m.info = Info{Name: opt.Model.Name(), Kind: "model", Source: path, Vocabulary: m.e.Vocabulary(), Context: 256}
	if m.e.IsBlock() {
		m.info.Kind, m.info.Width = "block", m.e.Decode().Input("x").Shape[1]
		m.info.Output = m.e.Decode().Outputs[0].Shape.Last()
	}
	return m, nil
}

func (m *testModel) Info() Info             { return m.info }
func (m *testModel) Engine() *engine.Engine { return m.e }
func (m *testModel) Text() serve.Tokens {
	if m.text == nil {
		return nil
	}
	return serve.NewVocabulary(m.text)
}
func (m *testModel) Many() (serve.Model, error) {
	return serve.NewScheduledModel(m.e, engine.SchedulerOptions{Sequences: 4, Queue: 1 << 16},
		serve.SessionOptions{Text: m.Text(), Grammar: serve.NewGrammarMasks(m.text), Parallel: 4,
			Info: serve.Info{Context: 256}})
}
func (m *testModel) Check(context.Context, []int32, float64) (any, error) {
	return map[string]bool{"ok": true}, nil
}
func (m *testModel) Plan(stage, _ string, _ int) (string, error) { return "plan of " + stage, nil }
func (m *testModel) Embed(context.Context, []string, EmbedOptions) ([]Vector, error) {
	return nil, errors.New("it is no model of vectors")
}
func (m *testModel) Close() error {
	if *m.closed {
		return errors.New("closed twice")
	}
	*m.closed = true
	errs := []error{m.e.Close(), m.dev.Close()}
	if m.source != nil {
		errs = append(errs, m.source.Close())
	}
	return errors.Join(errs...)
}

// model loads testdata's.
func (c *client) model(path string) uint64 {
	c.t.Helper()
	if path == "" {
		path = testfiles.Repo(c.t, "testdata", "tolstoy-2.7m")
	}
	var a struct{ Model uint64 }
	c.must("load", map[string]any{"path": path}, &a)
	return a.Model
}

func TestVersions(t *testing.T) {
	c := bare(t, Options{Version: "1.2.3"})
	c.refused(codeVersion, "speaks version 7 of the protocol, greta 1.2.3 version 1", "hello",
		map[string]any{"protocol": 7, "client": "old"})
	if err := c.close(); err == nil || !strings.Contains(err.Error(), "version 7") {
		t.Errorf("Serve: %v", err)
	}
	c = bare(t, Options{})
	c.refused(codeProtocol, `the first request is "ping", expected is hello`, "ping", nil)
	c = bare(t, Options{})
	go c.to.Write([]byte("run models/llama2_block.yaml\n")) // it stops reading within
	if r := c.next(); r.Error == nil || r.Error.Code != codeProtocol || !strings.Contains(r.Error.Message, "no frame") {
		t.Errorf("%+v", r.Error)
	}
	c = bare(t, Options{})
	if err := c.close(); err != nil { // nobody asks
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	c := start(t, Options{Code: func(err error) string {
		if errors.Is(err, errBroken) {
			return "memory"
		}
		return ""
	}})
	c.refused(codeUnsupported, `no operation "fly"; there are attach,`, "fly", nil)
	c.refused(codeUsage, `unknown field "pathh"`, "load", map[string]any{"pathh": "x"})
	c.refused(codeUsage, "path is missing", "load", nil)
	c.refused("memory", "broken", "load", map[string]any{"path": "broken"})
	c.refused(codeInternal, "on purpose", "load", map[string]any{"path": "panics"})
	c.refused(codeUsage, "there is no model 99", "generate",
		map[string]any{"model": 99, "prompts": []any{map[string]any{"text": "a"}}})
	c.refused(codeUsage, "the first argument is one of bench", "command", map[string]any{"args": []string{"serve"}})
	m := c.model("")
	for words, args := range map[string]map[string]any{
		"there is no prompt":                        {},
		"must be 0 or more":                         {"prompts": []any{map[string]any{"text": "a"}}, "max_tokens": -1},
		"text or tokens are expected":               {"prompts": []any{map[string]any{}}},
		"token 1 is 99999, the vocabulary has 2048": {"prompts": []any{map[string]any{"tokens": []int{1, 99999}}}},
		"stop text is empty":                        {"prompts": []any{map[string]any{"text": "a"}}, "stop": []string{""}},
		"exclude each other": {"prompts": []any{map[string]any{"text": "a"}}, "json": true,
			"regex": "a"},
		"the prompt's 2 tokens and 300 of the answer": {"prompts": []any{map[string]any{"text": "a"}}, "max_tokens": 300},
		"logit_bias has token 5000, the vocabulary has 2048": {"prompts": []any{map[string]any{"text": "a"}},
			"logit_bias": map[string]any{"5000": 1}},
		"temperature is -1": {"prompts": []any{map[string]any{"text": "a"}}, "temperature": -1},
	} {
		args["model"] = m
		c.refused(codeUsage, words, "generate", args)
	}
	c.refused(codeUsage, "load it with the option task=embed", "embed", map[string]any{"model": m, "texts": []string{"a"}})
	c.refused(codeUsage, "no tokens", "logits", map[string]any{"model": m})
	c.refused(codeUsage, "300 tokens at position 0", "logits", map[string]any{"model": m, "tokens": make([]int, 300)})
	c.refused(codeUsage, "there is no token 5000", "detokenize", map[string]any{"model": m, "tokens": [][]int{{5000}}})
	big := json.RawMessage("1" + strings.Repeat("0", 60))
	for words, q := range map[string]struct {
		op   string
		args map[string]any
	}{
		"texts is null at index 1, a text is expected": {"tokenize", map[string]any{"texts": []any{"a", nil}}},
		"texts is a number, a text is expected":        {"embed", map[string]any{"texts": []any{"a", 5}}},
		"normalize is a text, true or false is":        {"embed", map[string]any{"normalize": "yes"}},
		"tokens is null among them, a whole":           {"logits", map[string]any{"tokens": []any{1, nil}}},
		"a whole number below 2^31 is":                 {"logits", map[string]any{"tokens": []any{big}}},
		"seed is 1000000000000000000000000000000000000000\u2026, a whole number from 0 to 2^64-1 is": {"generate",
			map[string]any{"seed": big}},
		"prompts is a text, a list is":       {"generate", map[string]any{"prompts": "a"}},
		"stop is null at index 0, a text is": {"generate", map[string]any{"stop": []any{nil}}},
	} {
		q.args["model"] = m
		c.refused(codeUsage, words, q.op, q.args)
	}
	c.refused(codeUsage, "there is no session 5", "run-session", map[string]any{"session": 5})
	c.must("close", map[string]any{"model": m}, nil)
	c.refused(codeUsage, "is closed already", "close", map[string]any{"model": m})
	c.must("ping", nil, nil) // it goes on behind all of these
	// Two requests of one number: the second is refused, the first goes on.
	slow := bare(t, Options{Load: func(ctx context.Context, _ string, _ map[string]json.RawMessage) (Model, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	slow.must("hello", map[string]any{"protocol": Protocol}, nil)
	slow.send("load", map[string]any{"path": "x"})
	slow.id--
	slow.refused(codeProtocol, "is under way already", "ping", nil)
	slow.write(framed(`{"id":0,"op":"cancel","args":{"target":2}}`, nil))
	if r := slow.next(); r.ID != 2 || r.Error == nil || r.Error.Code != codeCanceled {
		t.Errorf("%+v", r)
	}
	slow.write(framed("no JSON", nil))
	if r := slow.next(); r.Error == nil || r.Error.Code != codeProtocol {
		t.Errorf("%+v", r)
	}
	if err := slow.close(); err == nil {
		t.Error("a stream of something else is no error of Serve's")
	}
}

type told struct {
	P int    `json:"p"`
	C int    `json:"c"`
	T int32  `json:"t"`
	S string `json:"s"`
}

// generate gives the answers' texts, by prompt and choice.
func (c *client) generate(args map[string]any) (map[[2]int]string, []answered) {
	c.t.Helper()
	id := c.send("generate", args)
	texts := map[[2]int]string{}
	for {
		r := c.next()
		switch {
		case r.ID != id:
		case r.Error != nil:
			c.t.Fatalf("%+v", r.Error)
		case r.Event != nil:
			var pieces []told
			if err := json.Unmarshal(r.Event, &pieces); err != nil {
				c.t.Fatal(err)
			}
			for _, p := range pieces {
				texts[[2]int{p.P, p.C}] += p.S
			}
		default:
			var end struct{ Answers []answered }
			if err := json.Unmarshal(r.OK, &end); err != nil {
				c.t.Fatal(err)
			}
			return texts, end.Answers
		}
	}
}

func TestGenerate(t *testing.T) {
	c := start(t, Options{})
	m := c.model("")
	var ids struct{ Tokens [][]int32 }
	c.must("tokenize", map[string]any{"model": m, "texts": []string{"Prince Andrew", ""}, "bos": true}, &ids)
	if len(ids.Tokens) != 2 || len(ids.Tokens[0]) < 3 || len(ids.Tokens[1]) != 1 {
		t.Fatalf("%v", ids)
	}
	var texts struct{ Texts []string }
	c.must("detokenize", map[string]any{"model": m, "tokens": ids.Tokens}, &texts)
	if texts.Texts[0] != "Prince Andrew" {
		t.Errorf("%q", texts.Texts)
	}
	const want = " was sitting in the middle of the room, and the"
	prompts := []any{map[string]any{"text": "Prince Andrew"}, map[string]any{"tokens": ids.Tokens[0]},
		map[string]any{"text": "The old man"}}
	got, ends := c.generate(map[string]any{"model": m, "prompts": prompts, "max_tokens": 12, "choices": 2})
	if len(got) != 6 || len(ends) != 6 {
		t.Fatalf("%v %v", got, ends)
	}
	for p := range 2 {
		for k := range 2 {
			if text := got[[2]int{p, k}]; text != want {
				t.Errorf("prompt %d, choice %d: %q", p, k, text)
			}
		}
	}
	for _, e := range ends {
		if e.Stop != "max" {
			t.Errorf("%+v", e)
		}
	}
	got, ends = c.generate(map[string]any{"model": m, "prompts": prompts[:1], "max_tokens": 12,
		"stop": []string{"middle"}})
	if text := got[[2]int{0, 0}]; text != " was sitting in the " || ends[0].Stop != "stop" ||
		ends[0].StopText != "middle" {
		t.Errorf("%q %+v", text, ends)
	}
	got, _ = c.generate(map[string]any{"model": m, "prompts": prompts[:1], "max_tokens": 20,
		"choice": []string{" no", " yes"}})
	if text := got[[2]int{0, 0}]; text != " no" && text != " yes" {
		t.Errorf("%q", text)
	}
	// A context that is full ends an answer.
	_, ends = c.generate(map[string]any{"model": m, "prompts": prompts[:1], "ignore_eos": true})
	if ends[0].Stop != "context" {
		t.Errorf("%+v", ends)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// TestCancel: a generation that is cancelled ends, and another goes on; closing the model ends what it does.
func TestCancel(t *testing.T) {
	c := start(t, Options{})
	m := c.model("")
	long := map[string]any{"model": m, "prompts": []any{map[string]any{"text": "Prince"}}, "ignore_eos": true,
		"max_tokens": 250}
	first := c.send("generate", long)
	for c.next().ID != first { // it has begun
	}
	c.write(framed(fmt.Sprintf(`{"id":0,"op":"cancel","args":{"target":%d}}`, first), nil))
	second := c.send("generate", map[string]any{"model": m, "prompts": []any{map[string]any{"text": "Prince"}},
		"max_tokens": 3})
	for left := 2; left > 0; {
		switch r := c.next(); {
		case r.Event != nil:
		case r.ID == first:
			left--
			if r.Error == nil || *r.Error != (Error{codeCanceled, "the request was cancelled"}) {
				t.Errorf("the cancelled one: %+v", r)
			}
		case r.ID == second:
			left--
			if r.Error != nil {
				t.Errorf("the other: %+v", r.Error)
			}
		}
	}
	closed := Error{codeCanceled, "the model llama was closed meanwhile"}
	third := c.send("generate", long)
	for c.next().ID != third {
	}
	closing := c.send("close", map[string]any{"model": m})
	for left := 2; left > 0; {
		switch r := c.next(); {
		case r.Event != nil:
		case r.ID == third && (r.Error == nil || *r.Error != closed),
			r.ID == closing && r.Error != nil:
			t.Errorf("%+v %+v", r, r.Error)
			left--
		default:
			left--
		}
	}
	// A model that is closed right behind a request was open when that came: it is cancelled too.
	m = c.model("")
	long["model"] = m
	fourth := c.send("generate", long)
	closing = c.send("close", map[string]any{"model": m})
	for left := 2; left > 0; {
		switch r := c.next(); {
		case r.Event != nil:
		case r.ID == fourth && (r.Error == nil || *r.Error != closed),
			r.ID == closing && r.Error != nil:
			t.Errorf("%+v %+v", r, r.Error)
			left--
		default:
			left--
		}
	}
	// The stream's end ends everything.
	m = c.model("")
	long["model"] = m
	c.send("generate", long)
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func TestOrphan(t *testing.T) {
	gone := make(chan struct{})
	c := start(t, Options{Orphaned: func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}})
	close(gone)
	select {
	case err := <-c.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end without the process that asked")
	}
}

// TestLogits: prefill's rows are those of a session's steps, small ones in the frame.
func TestLogits(t *testing.T) {
	c := start(t, Options{})
	m := c.model("")
	tokens := []int32{1, 484, 300}
	var a struct{ Logits, Out Tensor }
	r := c.must("logits", map[string]any{"model": m, "tokens": tokens}, &a)
	if a.Logits.Type != "f32" || fmt.Sprint(a.Logits.Shape) != "[3 2048]" || len(r.payload) != 3*2048*4 {
		t.Fatalf("%+v, %d bytes", a.Logits, len(r.payload))
	}
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	for i, token := range tokens {
		step := c.must("run-session", map[string]any{"session": s.Session, "tokens": []int32{token}}, &a)
		rel, _ := relative(step.payload, r.payload[i*2048*4:(i+1)*2048*4])
		if rel > 1e-2 { // the model's products round to bf16
			t.Errorf("row %d: relative L2 %g", i, rel)
		}
	}
	c.must("rewind", map[string]any{"session": s.Session, "pos": 2}, nil)
	c.refused(codeUsage, "", "rewind", map[string]any{"session": s.Session, "pos": 9})
	last := c.must("logits", map[string]any{"model": m, "tokens": tokens, "last": true}, &a)
	if len(last.payload) != 2048*4 {
		t.Errorf("%d bytes", len(last.payload))
	}
	c.refused(codeUsage, "takes tokens, not x", "run-session", map[string]any{"session": s.Session,
		"x": Tensor{Type: "f32"}})
	c.must("end-session", map[string]any{"session": s.Session}, nil)
	c.refused(codeUsage, "there is no session", "end-session", map[string]any{"session": s.Session})
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func wide(b []byte) []float64 {
	var out []float64
	for _, v := range tensor.View[float32](bytes.Clone(b)) {
		out = append(out, float64(v))
	}
	return out
}

func TestBlock(t *testing.T) {
	c := start(t, Options{})
	m := c.model("block")
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	x := make([]float32, 3*64)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	args := map[string]any{"session": s.Session, "x": Tensor{Type: "f32", Shape: []int{3, 64}}}
	var a struct {
		Out Tensor
		Pos int
	}
	r := c.must("run-session", args, &a, tensor.Bytes(x)...)
	if fmt.Sprint(a.Out.Shape) != "[3 64]" || a.Pos != 3 || len(r.payload) != 3*64*4 {
		t.Fatalf("%+v", a)
	}
	args["reset"] = true
	if again := c.must("run-session", args, &a, tensor.Bytes(x)...); !bytes.Equal(again.payload, r.payload) || a.Pos != 3 {
		t.Errorf("from the beginning again: other bits, or position %d", a.Pos)
	}
	for words, bad := range map[string]Tensor{
		"expected is [rows, 64]":            {Type: "f32", Shape: []int{3, 63}},
		"0 rows":                            {Type: "f32", Shape: []int{0, 64}},
		"300 rows":                          {Type: "f32", Shape: []int{300, 64}},
		`type "f16", expected is f32`:       {Type: "f16", Shape: []int{3, 64}},
		"the payload 768":                   {Type: "f32", Shape: []int{4, 64}},
		"a multiple of 4":                   {Type: "f32", Shape: []int{2, 64}, Offset: 3},
		"no attached memory 77":             {Type: "f32", Shape: []int{2, 64}, Handle: 77},
		"one of both is expected":           {Type: "f32", Shape: []int{2, 64}, Handle: 7, Path: "/proc/1/fd/1"},
		"shared memory /etc/passwd":         {Type: "f32", Shape: []int{2, 64}, Path: "/etc/passwd"},
		"shared memory /proc/self/fd/99999": {Type: "f32", Shape: []int{2, 64}, Path: "/proc/self/fd/99999"},
	} {
		c.refused(codeUsage, words, "run-session", map[string]any{"session": s.Session, "reset": true, "x": bad},
			tensor.Bytes(x)...)
	}
	c.refused(codeUsage, "is a block", "generate", map[string]any{"model": m,
		"prompts": []any{map[string]any{"text": "a"}}})
	c.refused(codeUsage, "is a block", "logits", map[string]any{"model": m, "tokens": []int{1}})
	c.refused(codeUsage, "no tokenizer lies with", "tokenize", map[string]any{"model": m, "texts": []string{"a"}})
	c.must("check", map[string]any{"model": m}, nil)
	c.must("plan", map[string]any{"model": m, "stage": "graph"}, nil)
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func TestCommand(t *testing.T) {
	var got []string
	c := start(t, Options{Command: func(_ context.Context, args []string) ([]byte, error) {
		got = args
		if slices.Contains(args, "bad") {
			return []byte(`[{"verdict":"failed"}]`), errBroken
		}
		return []byte(`[{"verdict":"ok"}]`), nil
	}})
	r := c.must("bench", map[string]any{"args": []string{"platform", "cache"}}, nil)
	if string(r.OK) != `{"rows":[{"verdict":"ok"}]}` || strings.Join(got, " ") != "bench platform cache --output=json" {
		t.Errorf("%s %v", r.OK, got)
	}
	c.send("bench", map[string]any{"args": []string{"op", "bad"}})
	if r := c.next(); string(r.Event) != `{"rows":[{"verdict":"failed"}]}` {
		t.Errorf("the rows of a run that failed: %+v", r)
	}
	if r := c.next(); r.Error == nil || r.Error.Code != codeFailed {
		t.Errorf("%+v", r)
	}
	c.must("command", map[string]any{"args": []string{"version"}}, nil)
}

// relative compares floats.
func relative(x, want []byte) (relL2, maxAbs float64) { return engine.Errors(wide(x), wide(want)) }
