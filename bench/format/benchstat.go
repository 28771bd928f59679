package format

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/greta-project/greta/bench/record"
)

// Benchstat writes results as Go's benchmarks are written
// (https://go.dev/design/14313-benchmark-format): a line for each sample, so that
// benchstat computes medians and intervals itself. Results that are not OK are
// comments.
func Benchstat(w io.Writer, run *record.Run, results []record.Result) error {
	var b strings.Builder
	e := &run.Env
	// What differs between two runs that are to be compared is a comment: benchstat
	// compares only what has the same configuration.
	for _, kv := range [][2]string{
		{"# run", run.ID}, {"# commit", e.Commit}, {"# driver", e.Driver},
		{"goos", e.OS}, {"goarch", e.Arch}, {"pkg", "greta"}, {"cpu", e.CPU}, {"backend", e.Backend}, {"device", e.Device},
		{"level", e.Level},
	} {
		if kv[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", kv[0], strings.Join(strings.Fields(kv[1]), " "))
		}
	}
	b.WriteString("Unit B/s better=higher\nUnit FLOP/s better=higher\nUnit tokens/s better=higher\n\n")
	for i := range results {
		r := &results[i]
		if r.Verdict != record.OK {
			fmt.Fprintf(&b, "# %s %s: %s\n", benchName(r), r.Verdict, strings.Join(strings.Fields(r.Reason), " "))
			continue
		}
		for _, s := range r.Samples {
			fmt.Fprintf(&b, "%s 1 %.10g ns/op", benchName(r), s*1e9)
			if r.Bytes > 0 {
				fmt.Fprintf(&b, " %.6g B/s", r.Bytes/s)
			}
			if r.Flops > 0 {
				fmt.Fprintf(&b, " %.6g FLOP/s", r.Flops/s)
			}
			if tokens := r.Metrics["tokens"]; tokens > 0 {
				fmt.Fprintf(&b, " %.6g tokens/s", tokens/s)
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// benchName is a result's name as Go's benchmarks have them: without spaces, with
// a capital behind "Benchmark".
func benchName(r *record.Result) string {
	name := strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return '_'
		}
		return c
	}, r.Name())
	return "Benchmark" + strings.ToUpper(name[:1]) + name[1:]
}
