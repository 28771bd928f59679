package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/testfiles"
)

// truncated copies the first part of a file.
func truncated(t testing.TB, path string, n int) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Base(path), string(data[:n]))
}

// edited copies a golden folder and changes a file in it.
func edited(t testing.TB, name, file string, change func(string) string) string {
	t.Helper()
	dir := family(t, name)
	path := filepath.Join(dir, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text := change(string(data)); text == string(data) {
		t.Fatalf("the change leaves %s as it is", file)
	} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Bad input ends with code 2 and one clear message, and names what is wrong.
// A table, in one piece.
func TestBadInput(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	safetensors := filepath.Join(model, "model.safetensors")
	swap := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	block := []string{"llama2_block", "--set", "D=64", "--set", "H=4", "--set", "G=2", "--set", "F=96"}
	for _, c := range []struct {
		name string
		args []string
		want string // in the message
		code int    // 0: exitUsage
	}{
		{name: "no model", args: []string{"run"}, want: "one model"},
		{name: "unknown verb", args: []string{"rnu"}, want: "did you mean run"},
		{name: "unknown flag", args: []string{"run", model, "--promt", "x"},
			want: "unknown flag: --promt; did you mean --prompt? see greta run --help"},
		{name: "no such file", args: []string{"run", "./nothing-here"}, want: "no such file"},
		{name: "no such model file", args: []string{"run", "llama2_blok"}, want: "llama2_block"},
		{name: "a folder that is no model", args: []string{"run", t.TempDir()}, want: "not a model"},
		{name: "a text file", args: []string{"run", write(t, "x.gguf", "hello")}, want: "not a model"},
		{name: "an empty file", args: []string{"run", write(t, "x.gguf", "")}, want: "empty"},
		{name: "truncated safetensors", args: []string{"run", truncated(t, safetensors, 5_000_000), "--prompt", "x"},
			want: "model.safetensors"},
		{name: "truncated header", args: []string{"run", truncated(t, safetensors, 100), "--prompt", "x"},
			want: "model.safetensors"},
		{name: "missing tensor", args: []string{"run", edited(t, "gemma2", "model.safetensors",
			swap("model.norm.weight", "model.morn.weight")), "--tokens", "1"}, want: "model.norm.weight"},
		{name: "wrong shape", args: []string{"run", edited(t, "gemma2", "config.json",
			swap(`"intermediate_size": 160`, `"intermediate_size": 161`)), "--tokens", "1"}, want: "161"},
		{name: "broken config", args: []string{"run", edited(t, "gemma2", "config.json", swap("{", "")), "--tokens", "1"},
			want: "config.json"},
		{name: "unknown architecture", args: []string{"run", edited(t, "gemma2", "config.json",
			swap("Gemma2ForCausalLM", "NoSuchForCausalLM")), "--tokens", "1"}, want: "NoSuchForCausalLM"},
		{name: "bad model file", args: []string{"run", write(t, "m.yaml", "block: b\nin: {x: 'float[S, D]'}\nparams: {D: "+
			"8}\nbody:\n  y: silo(x)\nout: y\n")}, want: "did you mean silu"},
		{name: "cycle", args: []string{"run", write(t, "m.yaml", "block: b\nin: {x: 'float[S, D]'}\nparams: {D: "+
			"8}\nbody:\n  y: x + z\n  z: silu(y)\nout: z\n")}, want: "z"},
		{name: "no YAML", args: []string{"run", write(t, "m.yaml", "a: [")}, want: "m.yaml"},
		{name: "too many tokens to generate", args: []string{"run", model, "--tokens", "1", "--gen", "9223372036854775807"},
			want: "below 2^31"},
		{name: "too many tokens of prefill", args: []string{"run", model, "--gen", "1", "--prefill", "9223372036854775807"},
			want: "below 2^31"},
		{name: "a tolerance that is no number", args: []string{"check", model, "--tolerance", "NaN"}, want: "--tolerance"},
		{name: "a tolerance without end", args: []string{"check", model, "--tolerance", "Inf"}, want: "--tolerance"},
		{name: "prompt and tokens", args: []string{"run", model, "--prompt", "a", "--tokens", "1"}, want: "exclude"},
		{name: "tokens that are no ids", args: []string{"run", model, "--tokens", "1,x"}, want: `"x"`},
		{name: "tokens too large for an id", args: []string{"run", model, "--tokens", "99999999999"}, want: "99999999999"},
		{name: "token out of range", args: []string{"run", model, "--tokens", "1,2048"},
			want: "the model's vocabulary has 2048"},
		{name: "negative token", args: []string{"run", model, "--tokens", "1,-1"}, want: "-1"},
		{name: "prompt longer than the context", args: []string{"run", model, "--tokens", "1,2,3,4,5", "--context", "4"},
			want: "do not fit --context 4"},
		{name: "prompt longer than the training", args: []string{"run", model, "--prompt",
			strings.Repeat("war and peace ", 300), "--gen", "2"}, want: "the 512 that the model was trained for"},
		{name: "a token is missing", args: []string{"run", model, "--tokens", "1,,2"}, want: "missing beside a comma"},
		{name: "stop without a tokenizer", args: []string{"run", family(t, "qwen2"), "--tokens", "1", "--stop", "x"},
			want: "--tokenizer"},
		{name: "no context", args: []string{"run", model, "--context", "-1"}, want: "positive"},
		{name: "measured run past the context", args: append([]string{"run", "--context", "100"}, block...),
			want: "do not fit"},
		{name: "a block with a prompt", args: append([]string{"run", "--prompt", "x"}, block...), want: "is a block"},
		{name: "logits without a prompt", args: append([]string{"run", "--logits", "x.npy"}, block...),
			want: "--prompt or --tokens"},
		{name: "unknown parameter", args: []string{"run", "llama2_block", "--set", "DD=64"}, want: "DD"},
		{name: "half a parameter", args: []string{"run", "llama2_block", "--set", "D"}, want: "NAME=VALUE"},
		{name: "unknown type", args: []string{"run", "llama2_block", "--dtype", "q9"}, want: "q4_0"},
		{name: "unknown mix", args: []string{"run", "llama2_block", "--dtype", "mix:q9"}, want: "q4_k_m"},
		{name: "a mix of types of a model file that names no tensors of GGUF",
			args: []string{"run", "longcat_block", "--dtype", "q4_k_m"}, want: "no gguf: name"},
		{name: "a mix that has a type's name, of real weights", args: []string{"run", model, "--dtype", "MIX:q4_0"},
			want: "--type q4_0 writes"},
		{name: "a mix of types of real weights", args: []string{"run", model, "--dtype", "q4_k_m"}, want: "greta quantize"},
		{name: "unknown cache", args: []string{"run", "llama2_block", "--kv", "q4_0"}, want: "f16"},
		{name: "cache limit", args: []string{"run", model, "--cache-limit", "much"}, want: "--cache-limit"},
		{name: "temperature", args: []string{"run", model, "--prompt", "x", "--temperature", "-1"}, want: "temperature"},
		{name: "top-p", args: []string{"run", model, "--prompt", "x", "--top-p", "2"}, want: "top-p"},
		{name: "empty stop", args: []string{"run", model, "--prompt", "x", "--stop", ""}, want: "--stop"},
		{name: "threads", args: []string{"run", model, "--threads", "-3"}, want: "--threads"},
		{name: "no tokenizer", args: []string{"run", family(t, "qwen2"), "--prompt", "x"}, want: "--tokenizer"},
		{name: "unwritable output", args: []string{"run", model, "--prompt", "x", "--json", os.DevNull + "/x.json"},
			want: os.DevNull + "/x.json"},
		{name: "unknown backend", args: []string{"run", model, "--backend", "gpu"}, want: "cpu, ref", code: exitNoDevice},
		{name: "stage", args: []string{"dump", "llama2_block", "--stage", "x"}, want: "program"},
		{name: "ids to decode that are none", args: []string{"tokenize", model, "1,x", "--decode"}, want: `--decode: "x"`},
		{name: "an id that the tokenizer lacks", args: []string{"tokenize", model, "1,2048", "--decode"},
			want: "no token 2048, the tokenizer has 2048"},
		{name: "a tokenizer in a damaged GGUF", args: []string{"tokenize", write(t, "x.gguf", "GGUF\x03\x00\x00\x00"), "x"},
			want: "gguf: "},
		{name: "golden", args: []string{"check", model, "--expected", safetensors}, want: "input_ids"},
		{name: "quantize type", args: []string{"quantize", model, "/tmp/x.gguf", "--type", "q9"}, want: "q4_k_m"},
		{name: "quantize nothing", args: []string{"quantize", "./nothing", "/tmp/x.gguf"}, want: "no such file"},
		{name: "show nothing", args: []string{"show", "./nothing"}, want: "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := greta(t, c.args...)
			want := c.code
			if want == 0 {
				want = exitUsage
			}
			if r.code != want {
				t.Errorf("exit code %d, want %d", r.code, want)
			}
			if !strings.HasPrefix(r.err, "greta: ") || !strings.Contains(r.err, c.want) {
				t.Errorf("the message lacks %q: %s", c.want, r.err)
			}
			if r.out != "" || strings.Contains(r.err, "goroutine") || strings.Contains(r.err, "internal error") {
				t.Errorf("%s%s", r.out, r.err)
			}
			if lines := strings.Count(strings.TrimSpace(r.err), "\n") + 1; lines > 1 && !strings.Contains(r.err, "^") {
				t.Errorf("%d lines: %s", lines, r.err)
			}
		})
	}
}

func TestTruncatedGGUF(t *testing.T) {
	path := testfiles.Shared(t, "data", "stories260K", "stories260K.gguf")
	for _, n := range []int{4, 20, 1000, 20_000, 600_000, 1_185_375} {
		if r := greta(t, "run", truncated(t, path, n), "--prompt", "x"); r.code != exitUsage ||
			strings.Contains(r.err, "goroutine") {
			t.Errorf("%d bytes: exit code %d, %s", n, r.code, r.err)
		}
	}
}

// A device full of other things is a failure, not bad input.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	for _, flag := range []string{"--json", "--logits", "--trace"} {
		r := greta(t, "run", model, "--prompt", "Prince", "--gen", "2", flag, "/dev/full")
		if r.code != exitFailed || !strings.Contains(r.err, "no space left") || !strings.Contains(r.err, flag) {
			t.Errorf("%s: exit code %d, %s", flag, r.code, r.err)
		}
	}
}

// slack is what other programs on a busy machine may add to a second: what hangs takes longer.
const slack = 15 * time.Second

// process is greta in a process of its own.
func process(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), "GRETA_TEST_MAIN=1")
	return c
}

// Ctrl-C ends a run within a second, with the report so far and code 130: in
// the middle of a text, and in a chunk of prefill that takes much longer.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals here")
	}
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	long := strings.Repeat("5,", 2000) + "5"
	for _, c := range []struct {
		name string
		args []string
		text bool // wait for text on standard output
	}{
		{"text", []string{"run", model, "--prompt", "Prince", "--gen", "100000", "--ignore-eos"}, true},
		{"long step", []string{"run", model, "--tokens", long, "--backend", "ref", "--chunk", "4096", "--context", "2304"},
			false},
		{"loading", []string{"run", "llama2_block", "--backend", "ref"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			path := filepath.Join(t.TempDir(), "out.json")
			cmd := process(ctx, append(c.args, "--json", path)...)
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if c.text {
				if _, err := bufio.NewReader(out).ReadByte(); err != nil {
					t.Fatal(err)
				}
			} else {
				for ctx.Err() == nil { // the work has begun when its output is: beside its name until it is whole
					if begun, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*.part")); len(begun) > 0 || exists(path) {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(300 * time.Millisecond)
			}
			start := time.Now()
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			// Drain, so that the child is not blocked by a full pipe.
			for buf := make([]byte, 1<<16); ; {
				if _, err := out.Read(buf); err != nil {
					break
				}
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			if took := time.Since(start); took > time.Second+slack {
				t.Errorf("it took %v", took)
			}
			if !strings.HasSuffix(errs.String(), "STATUS=INTERRUPTED\n") {
				t.Errorf("standard error: %s", errs.String())
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var rep report.Report
			if err := json.Unmarshal(data, &rep); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if rep.Status != report.Interrupted || c.text && (len(rep.GeneratedTokens) == 0 || rep.Text == "" ||
				rep.TTFTMS == nil) {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// Other verbs end as soon, with one line.
func TestInterruptedCheck(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := process(ctx, "check", "llama2_block")
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // of the several that the check takes
	start := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted ||
		errs.String() != "greta: interrupted\n" {
		t.Errorf("%v, %q", err, errs.String())
	}
	if took := time.Since(start); took > time.Second+slack {
		t.Errorf("it took %v", took)
	}
}

// A reader that goes away ends a run quietly.
func TestClosedPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGPIPE here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := process(ctx, "run", testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--prompt", "Prince", "--gen", "100000",
		"--ignore-eos")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(out, 16).ReadByte(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(errs.String(), "STATUS=OK\n") {
		t.Errorf("%v, standard error: %s", err, errs.String())
	}
	if err := (&exitError{code: 1, err: syscall.EPIPE}); exitCode(err) != 0 {
		t.Error("a closed pipe is not quiet")
	}
}
