package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		sorted []float64
		p      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{1, 2}, 0.5, 1.5},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{0, 10, 20, 30, 40}, 0.95, 38},
		{[]float64{0, 10, 20, 30, 40}, 1, 40},
		{[]float64{0, 10, 20, 30, 40}, 0, 0},
	} {
		if got := Percentile(c.sorted, c.p); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Percentile(%v, %g) = %g, want %g", c.sorted, c.p, got, c.want)
		}
	}
	if got := Percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: %g", got)
	}
}

// The ranks are those of the published tables of sign-test intervals.
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		n         int
		low, high float64
		sure      bool
	}{
		{1, 1, 1, false}, {5, 1, 5, false}, {6, 1, 6, true}, {8, 1, 8, true},
		{9, 2, 8, true}, {10, 2, 9, true}, {20, 6, 15, true}, {50, 18, 33, true},
	} {
		var s []float64
		for i := range c.n {
			s = append(s, float64(c.n-i))
		}
		low, high, sure := Interval(s)
		if low != c.low || high != c.high || sure != c.sure {
			t.Errorf("n = %d: [%g, %g] %v, want [%g, %g] %v", c.n, low, high, sure, c.low, c.high, c.sure)
		}
	}
}

func TestTimes(t *testing.T) {
	var d []time.Duration
	for i := range 99 {
		d = append(d, time.Duration(i+1)*time.Millisecond)
	}
	if times := NewTimes(d); times.P99 != nil || *times.P50 != 50 || times.N != 99 {
		t.Errorf("99 samples: %+v", times)
	}
	if times := NewTimes(append(d, 100*time.Millisecond)); times.P99 == nil || math.Abs(*times.P99-99.01) > 1e-9 {
		t.Errorf("100 samples: %+v", times)
	}
	if times := NewTimes(d[:19]); times.P95 != nil {
		t.Errorf("a 95th percentile of %d samples", times.N)
	}
	if times := NewTimes(d[:20]); times.P95 == nil {
		t.Errorf("no 95th percentile of %d samples", times.N)
	}
	if times := NewTimes(nil); times.P50 != nil {
		t.Errorf("no samples: %+v", times)
	}
}

func TestCompare(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		got, want []float32
		l2, worst float64
	}{
		{[]float32{1, 2}, []float32{1, 2}, 0, 0},
		{[]float32{3, 4.5}, []float32{3, 4}, 0.1, 0.5},
		{[]float32{0.5}, []float32{0}, 0.5, 0.5},
		{[]float32{nan}, []float32{1}, math.Inf(1), math.Inf(1)},
		{[]float32{1}, []float32{1, 2}, math.Inf(1), math.Inf(1)},
	} {
		if l2, worst := Compare(c.got, c.want); math.Abs(l2-c.l2) > 1e-12 && l2 != c.l2 || worst != c.worst {
			t.Errorf("Compare(%v, %v) = %g, %g", c.got, c.want, l2, worst)
		}
	}
}

func TestRoofRefusesWhatCannotBe(t *testing.T) {
	var p Phase
	p.SetPhase("tg10", 10, []time.Duration{time.Second}) // 10 tokens/s
	if err := p.SetRoof(1e9, 0, 0, 10, 0); err != nil || *p.Roof != 1 || *p.GBPerSecond != 10 {
		t.Errorf("at the peak: %v, %+v", err, p)
	}
	p.Roof = nil
	if err := p.SetRoof(0.5e9, 0.25e9, 0, 10, 0); err != nil || *p.Roof != 0.75 || *p.GBPerSecond != 5 {
		t.Errorf("caches count for the roof, and the share is that of the last samples: %v, %v, %v", err, *p.Roof,
			*p.GBPerSecond)
	}
	if err := p.SetRoof(1e9, 0, 0, 9, 0); err == nil || !strings.Contains(err.Error(), "111 %") {
		t.Errorf("above the peak: %v", err)
	}
}

func TestReportKeysAndText(t *testing.T) {
	r := Report{Status: OK, Model: "m", Backend: "cpu", KV: "f16", Context: 64, GeneratedTokens: []int32{1, 2},
		WeightBytes: 1000}
	r.Prefill.SetPhase("pp4", 4, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second})
	r.Decode.SetPhase("tg2", 2, []time.Duration{time.Second})
	r.InterToken = NewTimes([]time.Duration{time.Millisecond, 3 * time.Millisecond})
	if r.SetHost(nil, nil); r.HostUS != nil || r.SubmitUS != nil {
		t.Error("a host's time without steps")
	}
	us := time.Microsecond
	r.SetHost([]time.Duration{6 * us, 7 * us, 5 * us}, []time.Duration{12500, 9 * us, 9000 * us})
	if !strings.Contains(r.Summary(), "host µs per token until submitted p50 6.00, in all but waiting p50 12.50") {
		t.Errorf("the host's time is missing:\n%s", r.Summary())
	}
	if r.AddCheck(Check{Name: "left out", Skipped: true}); r.Status != OK ||
		!strings.Contains(r.Summary(), "left out: SKIPPED") {
		t.Errorf("a skipped check: %s\n%s", r.Status, r.Summary())
	}
	if strings.Contains(r.Summary(), "sequence") || strings.Contains(r.Summary(), "from the host and back") {
		t.Errorf("a sequence that nobody ran:\n%s", r.Summary())
	}
	r.Sequence = &Phase{}
	r.Sequence.SetPhase("tg2", 2, []time.Duration{time.Second / 2})
	r.Greedy = &Phase{}
	r.Greedy.SetPhase("tg2", 2, []time.Duration{time.Second / 4})
	for _, want := range []string{"decode    tg2          2.00 tokens/s  each step from the host and back\n",
		"sequence  tg2          4.00 tokens/s  the same steps, ", "greedy    tg2          8.00 tokens/s  tokens that the " +
			"device chooses, "} {
		if !strings.Contains(r.Summary(), want) {
			t.Errorf("no %q in\n%s", want, r.Summary())
		}
	}
	inf, limit := math.Inf(1), 1e-3
	r.AddCheck(Check{Name: "reference", OK: false, RelL2: &inf, Tolerance: &limit})
	if r.Status != Failed {
		t.Errorf("a failed check left the status %s", r.Status)
	}
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	at := func(path string) any {
		var v any = m
		for k := range strings.SplitSeq(path, ".") {
			v = v.(map[string]any)[k]
		}
		return v
	}
	for path, want := range map[string]any{
		"status": "FAILED", "prefill.tokens_per_second": 2.0, "decode.tokens_per_second": 2.0,
		"inter_token_ms.p50": 2.0, "inter_token_ms.p99": nil, "weight_bytes_per_token": 1000.0, "ttft_ms": nil,
	} {
		if got := at(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	text := r.Summary()
	for _, want := range []string{"pp4", "median of 3, range 1.00 to 4.00", "between tokens p50 2.00 ms",
		"STATUS=FAILED: reference"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if !strings.HasSuffix(text, "\n") || !strings.HasPrefix(text[strings.LastIndex(text[:len(text)-1], "\n")+1:],
		"STATUS=") {
		t.Errorf("the status is not the last line:\n%s", text)
	}
}

// Every key that can be written is documented.
func TestKeysAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(testfiles.Repo(t, "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range []any{Report{}, Phase{}, Times{}, Check{}, Sampling{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if n++; key == "" || !strings.Contains(string(doc), "`"+key+"`") {
				t.Errorf("docs/json.md lacks %s.%s, %q", typ.Name(), typ.Field(i).Name, key)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d keys", n)
	}
}

func TestHash(t *testing.T) {
	if HashIDs([]int32{1, 2}) == HashIDs([]int32{2, 1}) {
		t.Error("the order of ids does not change the hash")
	}
	// sha256 of eight bytes 01 00 00 00 02 00 00 00
	const want = "sha256:34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f"
	if got := HashIDs([]int32{1, 2}); got != want {
		t.Errorf("got %s", got)
	}
}

func TestTable(t *testing.T) {
	table := NewTable("<name", "n", "<note")
	table.Row("a", "10", "x")
	table.Row("größer", "9", "")
	want := "name     n  note\na       10  x\ngrößer   9\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	table.Row() // is none
	table.Row("語", "1\t2", "two \r\n lines", "no head")
	table.Row("╷b")
	want = "name         n  note\na           10  x\ngrößer       9\n" +
		"語      1    2  two     no head\n                 lines\n╷b\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestMemory(t *testing.T) {
	status := []byte("Name:\tx\nVmHWM:\t    1234 kB\nRssAnon:\t 77 kB\n")
	if statusKB(status, "VmHWM:") != 1234 || statusKB(status, "RssAnon:") != 77 || statusKB(status, "None:") != 0 {
		t.Error("the lines of /proc/self/status are misread")
	}
}
