package serve

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSeries(t *testing.T) {
	got := series("x_total", []string{"a", "b"}, []string{"p\"q\\r\ns", "bad\xff"})
	if want := `x_total{a="p\"q\\r\ns",b="bad�"}`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

func TestOctets(t *testing.T) {
	const text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets InMcast\nIpExt: 0 345 678 9\n"
	if in, out := octets(text); in != 345 || out != 678 {
		t.Errorf("%d came and %d went", in, out)
	}
	for _, bad := range []string{"", "TcpExt: A\nTcpExt: 1\n", "\nIpExt: InOctets", "\nIpExt: InOctets\nIpExt: x\n"} {
		if in, out := octets(bad); in != 0 || out != 0 {
			t.Errorf("%q: %d came and %d went", bad, in, out)
		}
	}
}

// TestMetricsText: every line is of Prometheus' format, a name has one type before its values, none is there twice, and
// what dashboards of a Go process ask for is there.
func TestMetricsText(t *testing.T) {
	_, h := testServer(t, newFake())
	for range 3 {
		post(t, h.URL+"/v1/chat/completions", ask("say hello", ""))
	}
	_, header, body := get(t, h.URL+"/metrics")
	if got := header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("the type is %s", got)
	}
	line := regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\]|\\.)*",? ?)+\})? (\+Inf|NaN|[-+\d.e]+)$`)
	types := map[string]string{}
	seen := map[string]bool{}
	for text := range strings.Lines(body) {
		text = strings.TrimSuffix(text, "\n")
		f := strings.Fields(text)
		switch {
		case strings.HasPrefix(text, "# TYPE ") && len(f) == 4:
			if types[f[2]] != "" {
				t.Errorf("%s has a second type", f[2])
			}
			types[f[2]] = f[3]
		case strings.HasPrefix(text, "# HELP ") && len(f) > 3:
		case line.MatchString(text):
			m := line.FindStringSubmatch(text)
			family := m[1]
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				short, ok := strings.CutSuffix(family, end)
				if ok && slices.Contains([]string{"histogram", "summary"}, types[short]) {
					family = short
				}
			}
			if types[family] == "" {
				t.Errorf("%s has no type before it", m[1])
			}
			if seen[m[1]+m[2]] {
				t.Errorf("%s%s is there twice", m[1], m[2])
			}
			seen[m[1]+m[2]] = true
		default:
			t.Errorf("no line of Prometheus' format: %q", text)
		}
	}
	for _, want := range []string{`vllm:e2e_request_latency_seconds_bucket{engine="0",model_name="fake",le="+Inf"} 3`,
		`vllm:e2e_request_latency_seconds_count{engine="0",model_name="fake"} 3`,
		`vllm:iteration_tokens_total_bucket{engine="0",model_name="fake",le="+Inf"}`,
		`greta:step_seconds{engine="0",model_name="fake",rows="96"} 0.012`,
		"# HELP vllm:prompt_tokens_total Tokens of prompts.", "# TYPE vllm:num_requests_running gauge"} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	names := strings.Fields("go_gc_duration_seconds go_gc_gogc_percent go_gc_gomemlimit_bytes go_goroutines " +
		"go_info go_memstats_alloc_bytes go_memstats_heap_inuse_bytes go_memstats_sys_bytes go_sched_gomaxprocs_threads " +
		"go_threads process_cpu_seconds_total")
	if runtime.GOOS == "linux" {
		names = append(names, strings.Fields("process_max_fds process_open_fds process_network_receive_bytes_total "+
			"process_network_transmit_bytes_total process_resident_memory_bytes process_start_time_seconds "+
			"process_virtual_memory_bytes process_virtual_memory_max_bytes")...)
	}
	for _, name := range names {
		if types[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
}
