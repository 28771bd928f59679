// A page of a measurement, one file without outside resources.

package serve

import (
	"html/template"
	"io"
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{"ms": ms}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Serving {{.Model}}</title>
<meta name="viewport" content="width=device-width">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #ccc}
th{font-weight:600}td:first-child,th:first-child{text-align:left}.wrong{color:#b00}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}.wrong{color:#f77}}
</style>
<h1>Serving {{.Model}}</h1>
<p>{{.URL}}{{.Endpoint}}, {{.Started.Format "2006-01-02 15:04:05"}} UTC. Times are milliseconds as the client saw them;
n is the number of samples, – is a percentile that n does not bear.</p>
<table><tr><th>load</th><th>requests</th><th>failed</th><th>requests/s</th><th>output tokens/s</th><th>all tokens/s</th>
<th>TTFT p50</th><th>p99</th><th>TPOT p50</th><th>p99</th><th>ITL p50</th><th>p99</th><th>n</th><th>E2EL p50</th>
	<th>p99</th><th>goodput/s</th></tr>
{{range .Levels}}<tr><td>{{if .Users}}{{.Users}} users{{else}}{{.Rate}}/s{{end}}</td><td>{{.Requests}}</td>
	<td>{{.Failed}}</td>
<td>{{printf "%.4g" .RequestsS}}</td><td>{{printf "%.5g" .OutputS}}</td><td>{{printf "%.5g" .TotalS}}</td>
<td>{{ms .TTFT.P50}}</td><td>{{ms .TTFT.P99}}</td><td>{{ms .TPOT.P50}}</td><td>{{ms .TPOT.P99}}</td>
	<td>{{ms .ITL.P50}}</td>
<td>{{ms .ITL.P99}}</td><td>{{.ITL.N}}</td><td>{{ms .E2EL.P50}}</td><td>{{ms .E2EL.P99}}</td><td>{{ms .Goodput}}</td>
	</tr>
{{range .Wrong}}<tr><td colspan="16" class="wrong">{{.}}</td></tr>{{end}}{{end}}</table>
<p>{{range $k, $v := .Environment}}{{$k}}: {{$v}}<br>{{end}}</p></html>
`))

// HTML writes the page.
func (r *Result) HTML(w io.Writer) error { return page.Execute(w, r) }
