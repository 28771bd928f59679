// A page of a measurement, one file without outside resources. It is written without html/template: with it the linker
// keeps every exported method of every type, six megabytes of the program.

package serve

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
)

const pageHead = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Serving %[1]s</title>
<meta name="viewport" content="width=device-width">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #ccc}
th{font-weight:600}td:first-child,th:first-child{text-align:left}.wrong{color:#b00}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}.wrong{color:#f77}}
</style>
<h1>Serving %[1]s</h1>
<p>%[2]s, %[3]s UTC. Times are milliseconds as the client saw them;
n is the number of samples, – is a percentile that n does not bear.</p>
<table><tr><th>load</th><th>requests</th><th>failed</th><th>requests/s</th><th>output tokens/s</th><th>all tokens/s</th>
<th>TTFT p50</th><th>p99</th><th>TPOT p50</th><th>p99</th><th>ITL p50</th><th>p99</th><th>n</th><th>E2EL p50</th>
	<th>p99</th><th>goodput/s</th></tr>
`

// HTML writes the page.
func (r *Result) HTML(w io.Writer) error {
	var b strings.Builder
	esc := html.EscapeString
	fmt.Fprintf(&b, pageHead, esc(r.Model), esc(r.URL+r.Endpoint), r.Started.Format("2006-01-02 15:04:05"))
	for _, l := range r.Levels {
		load := fmt.Sprintf("%v/s", l.Rate)
		if l.Users != 0 {
			load = fmt.Sprintf("%d users", l.Users)
		}
		b.WriteString("<tr>")
		for _, cell := range []any{load, l.Requests, l.Failed, fmt.Sprintf("%.4g", l.RequestsS),
			fmt.Sprintf("%.5g", l.OutputS), fmt.Sprintf("%.5g", l.TotalS), ms(l.TTFT.P50), ms(l.TTFT.P99), ms(l.TPOT.P50),
			ms(l.TPOT.P99), ms(l.ITL.P50), ms(l.ITL.P99), l.ITL.N, ms(l.E2EL.P50), ms(l.E2EL.P99), ms(l.Goodput)} {
			fmt.Fprintf(&b, "<td>%s</td>", esc(fmt.Sprint(cell)))
		}
		b.WriteString("</tr>\n")
		for _, wrong := range l.Wrong {
			fmt.Fprintf(&b, "<tr><td colspan=\"16\" class=\"wrong\">%s</td></tr>", esc(fmt.Sprint(wrong)))
		}
	}
	b.WriteString("</table>\n<p>")
	for _, k := range slices.Sorted(maps.Keys(r.Environment)) {
		fmt.Fprintf(&b, "%s: %s<br>", esc(k), esc(fmt.Sprint(r.Environment[k])))
	}
	b.WriteString("</p></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
