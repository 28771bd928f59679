package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// pipe is a process greta pipe, which is the test binary.
type pipe struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
	id  int
}

func startPipe(t *testing.T, env ...string) *pipe {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{t: t, cmd: exec.Command(exe, "pipe")}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.err
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.in.Close() })
	return p
}

// ask sends a request and gives its end: an answer and a payload, or a class and a message.
func (p *pipe) ask(op string, args any) (ok map[string]any, code, message string) {
	p.t.Helper()
	p.id++
	header, err := json.Marshal(map[string]any{"id": p.id, "op": op, "args": args})
	if err != nil {
		p.t.Fatal(err)
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(header)))
	frame = append(binary.LittleEndian.AppendUint64(frame, 0), header...)
	if _, err := p.in.Write(frame); err != nil {
		p.t.Fatal(err, p.err.String())
	}
	for {
		var prefix [12]byte
		if _, err := io.ReadFull(p.out, prefix[:]); err != nil {
			p.t.Fatal(err, p.err.String())
		}
		n := int64(binary.LittleEndian.Uint32(prefix[:])) + int64(binary.LittleEndian.Uint64(prefix[4:]))
		data := make([]byte, n)
		if _, err := io.ReadFull(p.out, data); err != nil {
			p.t.Fatal(err)
		}
		var r struct {
			ID    int
			Event any
			OK    map[string]any
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(data[:binary.LittleEndian.Uint32(prefix[:])], &r); err != nil {
			p.t.Fatal(err)
		}
		if r.ID == p.id && r.Event == nil {
			return r.OK, r.Error.Code, r.Error.Message
		}
	}
}

func (p *pipe) must(op string, args any) map[string]any {
	p.t.Helper()
	ok, code, message := p.ask(op, args)
	if code != "" {
		p.t.Fatalf("%s: %s: %s", op, code, message)
	}
	return ok
}

// end closes the stream and gives the exit code.
func (p *pipe) end() int {
	p.t.Helper()
	p.in.Close()
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait() // the code says it
	return p.cmd.ProcessState.ExitCode()
}

func (p *pipe) hello() {
	p.t.Helper()
	if ok := p.must("hello", map[string]any{"protocol": 1}); ok["greta"] != version() {
		p.t.Errorf("%v", ok)
	}
}

// TestPipe: a process loads models with run's options, answers, measures, and ends with its stream.
func TestPipe(t *testing.T) {
	p := startPipe(t)
	p.hello()
	tolstoy := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	loaded := p.must("load", map[string]any{"path": tolstoy, "options": map[string]any{"context": 64, "dtype": "f32",
		"parallel": 2, "threads": 1}})
	info := loaded["info"].(map[string]any)
	for key, want := range map[string]string{"kind": "model", "context": "64", "dtype": "f32", "kv": "f16",
		"backend":    "cpu",
		"vocabulary": "2048", "format": "safetensors", "tokenizer": "true", "chat_template": "false"} {
		if fmt.Sprint(info[key]) != want {
			t.Errorf("%s is %v, expected is %s", key, info[key], want)
		}
	}
	answers := p.must("generate", map[string]any{"model": loaded["model"], "max_tokens": 4,
		"prompts": []any{map[string]any{"text": "Prince Andrew"}}})["answers"].([]any)
	if len(answers) != 1 || answers[0].(map[string]any)["stop"] != "max" {
		t.Errorf("%v", answers)
	}
	if r := p.must("check", map[string]any{"model": loaded["model"]}); r["verdict"] != "self-consistent" {
		t.Errorf("%v", r["verdict"])
	}
	plan := p.must("plan", map[string]any{"model": loaded["model"], "stage": "program"})["text"].(string)
	if want := greta(t, "dump", tolstoy, "--stage", "program", "--context", "64", "--dtype", "f32", "--threads",
		"1").out; plan != want {
		t.Errorf("plan:\n%s\ngreta dump:\n%s", plan, want)
	}
	block := p.must("load", map[string]any{"path": "mlp_block", "options": map[string]any{
		"set": map[string]any{"D": 64, "F": "128"}, "weight_seed": 3}})
	if i := block["info"].(map[string]any); i["kind"] != "block" || fmt.Sprint(i["width"]) != "64" {
		t.Errorf("%v", i)
	}
	rows := p.must("bench", map[string]any{"args": []string{"op", "silu", "--m=2", "--n=64", "--cache=warm",
		"--min-time=1ms", "--no-store"}})["rows"].([]any)
	if len(rows) != 1 || rows[0].(map[string]any)["verdict"] != "ok" {
		t.Errorf("%v", rows)
	}
	for _, bad := range []struct {
		op    string
		args  map[string]any
		class string
		words string
	}{
		{"load", map[string]any{"path": "nowhere/model.gguf"}, "usage", "no such file"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"contxt": 1}}, "usage", "did you mean context?"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"context": "many"}}, "usage",
			"option context: --context many: a whole number is expected"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"context": json.RawMessage("1" +
			strings.Repeat("0", 60))}}, "usage", "000…: a whole number that is not as large is expected"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"context": []any{map[string]any{}}}}, "usage",
			"option context"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"kv_memory": "5 elephants"}}, "usage",
			"option kv_memory: "},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"parallel": 0}}, "usage", "parallel is 0"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"draft": "other.gguf"}}, "usage", "ngram"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"weight_seed": 1}}, "usage", "real ones"},
		{"load", map[string]any{"path": tolstoy, "options": map[string]any{"backend": "abacus"}}, "", "abacus"},
		{"bench", map[string]any{"args": []string{"op", "nothing"}}, "usage", "nothing"},
		{"plan", map[string]any{"model": loaded["model"], "stage": "dream"}, "usage", "there are spec"},
	} {
		_, code, message := p.ask(bad.op, bad.args)
		if code == "" || bad.class != "" && code != bad.class || !strings.Contains(message, bad.words) {
			t.Errorf("%s %v: %s: %s", bad.op, bad.args, code, message)
		}
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.err.String())
	}
}

// TestPipeOptions: what options leave out is what variables say; a version that is not ours is refused.
func TestPipeOptions(t *testing.T) {
	p := startPipe(t, "GRETA_CONTEXT=48")
	p.hello()
	info := p.must("load", map[string]any{"path": testfiles.Repo(t, "testdata", "tolstoy-2.7m")})["info"].(map[string]any)
	if fmt.Sprint(info["context"]) != "48" {
		t.Errorf("%v", info)
	}
	p.end()
	p = startPipe(t)
	if _, code, message := p.ask("hello", map[string]any{"protocol": 99}); code != "version" ||
		!strings.Contains(message, "version 99") {
		t.Errorf("%s: %s", code, message)
	}
	if code := p.end(); code != exitUsage || !strings.Contains(p.err.String(), "version 99") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}
