//go:build linux

package grammar

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSuite measures, on one thread, the compilation of every schema of the
// benchmark's eighth and the mask before every token of its valid instances, with a
// vocabulary of 151,665 tokens: each mask is asked for once, the schema's automata
// grow as they are needed. The times are the thread's own, so that other work on the
// machine does not count. Run it with -benchtime 1x.
func BenchmarkSuite(b *testing.B) {
	v := qwen(b)
	cases := suite(b, 1)
	set := make([]uint32, v.Words())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		var compiled, masks []time.Duration
		for _, c := range cases {
			begin := cpuTime(b)
			g, err := Compile(v, Schema(string(c.Schema)), Options{})
			compiled = append(compiled, cpuTime(b)-begin)
			if err != nil {
				continue
			}
			for _, x := range c.Tests {
				if !x.Valid {
					continue
				}
				var text bytes.Buffer
				if err := json.Compact(&text, x.Data); err != nil {
					b.Fatal(err)
				}
				k := g.NewMask()
				for i, id := range v.Spell(text.String()) {
					begin := cpuTime(b)
					if err := k.Allowed(set); err != nil {
						b.Fatal(err)
					}
					d := cpuTime(b) - begin
					masks = append(masks, d)
					if d > 3*time.Millisecond {
						b.Logf("%v %s token %d", d, c.name, i)
					}
					if err := k.Accept(id); err != nil {
						b.Fatalf("%s: %v", c.name, err)
					}
				}
			}
		}
		b.ReportMetric(0, "ns/op")
		report(b, "compile", compiled)
		report(b, "mask", masks)
	}
}

// cpuTime is how long this thread has computed.
func cpuTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func report(b *testing.B, name string, times []time.Duration) {
	slices.Sort(times)
	var sum time.Duration
	for _, d := range times {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	n := len(times)
	b.ReportMetric(us(sum)/float64(n), name+"-mean-us")
	b.ReportMetric(us(times[n/2]), name+"-p50-us")
	b.ReportMetric(us(times[n*99/100]), name+"-p99-us")
	b.Logf("%s: n=%d max %v", name, n, times[n-1])
}

// BenchmarkTagged measures masks of arguments as tagged parameters and as Python, and of a text before calls, with a
// vocabulary of 151,665 tokens: everything is compiled anew for each text.
func BenchmarkTagged(b *testing.B) {
	v := qwen(b)
	set := make([]uint32, v.Words())
	for name, p := range constrainedTexts() {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				var compiled, masks []time.Duration
				for range 5 {
					begin := cpuTime(b)
					p.opt.Compact, p.opt.Ordered = true, true
					g, err := Compile(v, p.src, p.opt)
					if err != nil {
						b.Fatal(err)
					}
					compiled = append(compiled, cpuTime(b)-begin)
					k := g.NewMask()
					for _, id := range v.Spell(p.text) {
						begin := cpuTime(b)
						if err := k.Allowed(set); err != nil {
							b.Fatal(err)
						}
						masks = append(masks, cpuTime(b)-begin)
						if err := k.Accept(id); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(0, "ns/op")
				report(b, "compile", compiled)
				report(b, "mask", masks)
			}
		})
	}
}
