package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
)

// losing is a processor that is lost once when it is told.
type losing struct {
	*cpu.Device
	lose *atomic.Bool
	gone atomic.Bool
}

func (d *losing) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.Device.Capture(p)
	return losingStep{e, d}, err
}

type losingStep struct {
	backends.Executable
	dev *losing
}

func (e losingStep) Wait() error {
	if e.dev.lose.Swap(false) {
		e.dev.gone.Store(true)
	}
	if e.dev.gone.Load() {
		return backends.Lost(errors.New("the plug was pulled"))
	}
	return e.Executable.Wait()
}

// withLosing makes such a backend available, and gives what loses its device and how many were opened.
func withLosing(t *testing.T) (lose *atomic.Bool, opened *atomic.Int32) {
	t.Helper()
	lose, opened = &atomic.Bool{}, &atomic.Int32{}
	old := backendTable
	backendTable = append(slices.Clone(old), backend{"losing", func(f deviceFlags) (backends.Device, error) {
		opened.Add(1)
		d, err := cpu.New(1)
		return &losing{Device: d, lose: lose}, err
	}})
	t.Cleanup(func() { backendTable = old })
	return lose, opened
}

// TestServeLostDevice: a lost device answers 503, and the model is loaded anew on one that is
// opened anew; or the server ends.
func TestServeLostDevice(t *testing.T) {
	lose, opened := withLosing(t)
	ask := func(url string) (int, string) {
		status, _, body := answerOf(t, http.DefaultClient, url+"/v1/completions",
			`{"prompt": "The army", "max_tokens": 4, "temperature": 0}`)
		return status, body
	}
	url := served(t, trained(t), "--backend", "losing", "--tuned", "off", "--parallel", "4")
	status, want := ask(url)
	if status != 200 {
		t.Fatal(status, want)
	}
	lose.Store(true)
	if status, body := ask(url); status != 503 || !strings.Contains(body, "device_lost") ||
		!strings.Contains(body, "plug was pulled") {
		t.Errorf("a lost device answers %d %s", status, body)
	}
	text := func(body string) string {
		_, after, _ := strings.Cut(body, `"text":`)
		text, _, _ := strings.Cut(after, `,"`)
		return text
	}
	if status, body := ask(url); status != 200 || text(body) != text(want) || opened.Load() < 2 {
		t.Errorf("afterwards: %d %s, before %s; %d devices were opened", status, body, want, opened.Load())
	}
}

// --exit-on-device-loss ends the server with the code for a device that is not there.
func TestServeEndsWithItsDevice(t *testing.T) {
	lose, _ := withLosing(t)
	at := make(chan string, 1)
	done := make(chan error, 1)
	f := &serveFlags{exitOnLoss: true, ready: func(addr string) { at <- addr }}
	f.fillDefaults()
	f.backend, f.kv, f.fp16, f.tuned, f.chunk = "losing", "f16", "auto", "off", 64
	a := &app{out: &strings.Builder{}, err: &strings.Builder{}, in: strings.NewReader("")}
	go func() { done <- a.serve(t.Context(), f, []string{trained(t)}) }()
	select {
	case err := <-done:
		t.Fatal(err)
	case url := <-at:
		lose.Store(true)
		if status, _, body := answerOf(t, http.DefaultClient, url+"/v1/completions",
			`{"prompt": "The army", "max_tokens": 4}`); status != 503 {
			t.Errorf("%d %s", status, body)
		}
	}
	var e *exitError
	if err := <-done; !errors.As(err, &e) || e.code != exitNoDevice || !strings.Contains(err.Error(), "plug was pulled") {
		t.Errorf("the server ended with %v", err)
	}
	if !strings.Contains((&app{}).serveCmd().Flags().Lookup("exit-on-device-loss").Usage, "supervisor") {
		t.Error("--exit-on-device-loss is not explained")
	}
}

// adapterMetrics: the metrics say of which adapters requests run.
func adapterMetrics(t *testing.T, url string) {
	t.Helper()
	const name = `vllm:lora_requests_info{max_lora="2",running_lora_adapters="two",waiting_lora_adapters=""} 1`
	const place = `vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tolstoy-2.7m",position="0"}`
	during := ""
	for try := 0; try < 5 && !strings.Contains(during, name); try++ { // on a busy machine it may have ended before
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model": "two",
			"prompt": "The army", "max_tokens": 400, "ignore_eos": true, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil { // it runs
			t.Fatal(err)
		}
		_, _, during = answerOf(t, http.DefaultClient, url+"/metrics", "")
		resp.Body.Close()
	}
	for _, want := range []string{name, place} {
		if !strings.Contains(during, want) {
			t.Errorf("the metrics have no %s: %s", want, during)
		}
	}
}

// TestServeAdapters: adapters by name beside the model itself, in one step, each with the text that a merged one has; a
// smaller model guesses for all of them.
func TestServeAdapters(t *testing.T) {
	model := trained(t)
	first, second := adapterFor(t, model, 1, 4, "q_proj", "down_proj"), adapterFor(t, model, 2, 4, "v_proj")
	want := map[string]string{}
	base := []string{"run", model, "-p", "The army", "-n", "12", "--exact", "--kv", "f32", "--tokenizer", model}
	for name, more := range map[string][]string{"tolstoy-2.7m": nil, "one": {"--lora", first}, "two": {"--lora", second}} {
		r := greta(t, append(slices.Clone(base), more...)...)
		if r.code != 0 {
			t.Fatal(r.err)
		}
		want[name] = strings.TrimSuffix(r.out, "\n")
	}
	url := served(t, model, "--lora", "one="+first, "--adapter", "two="+second, "--exact", "--kv", "f32", "--draft", model,
		"--parallel", "4", "--max-num-batched-tokens", "16", "--invariant", "--capture", "1,2")
	type answer struct {
		name, text string
		status     int
	}
	answers := make(chan answer, 6)
	for i := range 6 {
		name := []string{"tolstoy-2.7m", "one", "two"}[i%3]
		go func() {
			var a struct{ Choices []struct{ Text string } }
			status := postJSON(t, url+"/v1/completions",
				fmt.Sprintf(`{"model": %q, "prompt": "The army", "max_tokens": 12, "temperature": 0}`, name), &a)
			text := ""
			if len(a.Choices) > 0 {
				text = a.Choices[0].Text
			}
			answers <- answer{name, text, status}
		}()
	}
	for range 6 {
		if a := <-answers; a.status != 200 || a.text != want[a.name] {
			t.Errorf("%s: %d %q, merged %q", a.name, a.status, a.text, want[a.name])
		}
	}
	if _, _, body := answerOf(t, http.DefaultClient, url+"/v1/models", ""); !strings.Contains(body, `"id":"two"`) {
		t.Errorf("%s", body)
	}
	adapterMetrics(t, url)
	for _, c := range []struct{ arg, want string }{
		{"one=/nowhere", "/nowhere"}, {"=" + first, "NAME=PATH"}, {"tolstoy-2.7m=" + first, "two models are called"},
	} {
		if r := greta(t, "serve", model, "--port", "0", "--lora", c.arg); r.code != exitUsage ||
			!strings.Contains(r.err, c.want) {
			t.Errorf("--lora %s: exit code %d, %q is wanted: %s", c.arg, r.code, c.want, r.err)
		}
	}
}
