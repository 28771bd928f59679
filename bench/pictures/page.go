package pictures

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/sorting"
)

//go:embed page.html
var pageText string

//go:embed page.js
var script string

// Page writes a self-contained HTML page of all pictures with their figures, the
// runs that they come from, and the results that are not OK with the reasons. It
// asks for nothing from any network, and follows the reader's light or dark. Above the
// pictures results are chosen, looked at and compared (page.js).
// now is printed as the time of making.
//
// It does without html/template: with it the linker keeps every exported method of every type, six megabytes.
func Page(w io.Writer, title string, entries []store.Entry, now time.Time) error {
	pics, err := Draw("", entries)
	if err != nil {
		return err
	}
	data, err := json.Marshal(shownOf(entries)) // < is written as an escape
	if err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(script))
	runs := runsOf(entries)
	_, err = strings.NewReplacer("{{title}}", html.EscapeString(title),
		"{{made}}", now.UTC().Format("2006-01-02 15:04 UTC"), "{{results}}", strconv.Itoa(len(entries)),
		"{{count}}", strconv.Itoa(len(runs)), "{{figures}}", figures(pics)+notDrawn(entries), "{{runs}}", runRows(runs),
		"{{data}}", string(data), "{{script}}", script,
		"{{hash}}", "sha256-"+base64.StdEncoding.EncodeToString(hash[:])).WriteString(w, pageText)
	return err
}

// cells writes a row of a table.
func cells(b *strings.Builder, tag string, texts ...string) {
	b.WriteString("<tr>")
	for _, t := range texts {
		fmt.Fprintf(b, "<%s>%s</%[1]s>", tag, html.EscapeString(t))
	}
	b.WriteString("</tr>\n")
}

// figures writes the list of pictures and each with its figures.
func figures(pics []*Picture) string {
	if len(pics) == 0 {
		return "<p>There is nothing to draw: no result of a benchmark that a picture is made of has passed.</p>\n"
	}
	var b strings.Builder
	b.WriteString(`<nav aria-label="Pictures"><ul>`)
	for i, p := range pics {
		fmt.Fprintf(&b, `<li><a href="#%s-%d">%s</a></li>`, p.Name, i+1, html.EscapeString(p.Title))
	}
	b.WriteString("</ul></nav>\n")
	for i, p := range pics {
		// The drawing is made by us: names in it are escaped by its writer.
		fmt.Fprintf(&b, "<figure id=\"%s-%d\">\n<div class=\"plot\" role=\"img\" aria-label=\"%s\">%s</div>\n", p.Name, i+1,
			html.EscapeString(p.Title), p.svg())
		fmt.Fprintf(&b, "<figcaption>%s</figcaption>\n<details><summary>%d figures</summary><div "+
			"class=\"table\"><table>\n<thead>",
			html.EscapeString(p.Caption), len(p.Rows))
		cells(&b, "th", p.Head...)
		b.WriteString("</thead>\n<tbody>")
		for _, row := range p.Rows {
			cells(&b, "td", row...)
		}
		b.WriteString("</tbody></table></div></details>\n</figure>\n")
	}
	return b.String()
}

// notDrawn lists the results that are not OK, with the reasons.
func notDrawn(entries []store.Entry) string {
	var rows strings.Builder
	n := 0
	for i := range entries {
		if e := &entries[i]; e.Verdict != record.OK {
			n++
			cells(&rows, "td", e.Name(), e.Run.Env.On(), string(e.Verdict), e.Reason)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(`<h2>Results that are not drawn</h2>
<p class="quiet">They failed their check, were refused as faster than the device can be, or did not run.</p>
<details><summary>%d results</summary><div class="table reasons"><table>
<thead><tr><th>benchmark</th><th>device</th><th>verdict</th><th>why</th></tr></thead>
<tbody>%s</tbody></table></div></details>
`, n, rows.String())
}

// run is a run of which results are on the page.
type run struct {
	*record.Run
	results, bad int
}

// runsOf gives the runs of results, by their names.
func runsOf(entries []store.Entry) (runs []*run) {
	at := map[string]*run{}
	for i := range entries {
		e := &entries[i]
		r := at[e.Run.ID]
		if r == nil {
			r = &run{Run: e.Run}
			at[e.Run.ID] = r
			runs = append(runs, r)
		}
		r.results++
		if e.Verdict != record.OK {
			r.bad++
		}
	}
	sorting.Sort(runs, func(a, b *run) int { return strings.Compare(a.ID, b.ID) })
	return runs
}

func runRows(runs []*run) string {
	var b strings.Builder
	for _, r := range runs {
		results := strconv.Itoa(r.results)
		if r.bad > 0 {
			results += fmt.Sprintf(", %d not ok", r.bad)
		}
		cells(&b, "td", when(r.Started), r.Env.On(), r.Env.Driver, r.Env.Host, r.Env.Commit, string(r.Status), results,
			"greta "+strings.Join(r.Command, " "))
	}
	return b.String()
}

// shownRun and shown are what page.js reads. Times are in seconds.
type shownRun struct {
	Started int64  `json:"started"` // Unix time
	Device  string `json:"device"`
	Driver  string `json:"driver"`
	Commit  string `json:"commit"`
	Command string `json:"command"`
}

type shown struct {
	Run    int               `json:"run"` // index of its run
	Bench  string            `json:"bench"`
	Params map[string]string `json:"params"`
	Config string            `json:"config,omitempty"`
	Kernel string            `json:"kernel,omitempty"`
	Cache  string            `json:"cache,omitempty"`
	Clock  string            `json:"clock,omitempty"`
	Time   float64           `json:"time"` // median
	Lo     float64           `json:"lo"`
	Hi     float64           `json:"hi"`
	N      int               `json:"n"`
	Bytes  float64           `json:"bytes,omitempty"`
	Flops  float64           `json:"flops,omitempty"`
	Set    float64           `json:"set,omitempty"`   // working set, bytes
	Least  float64           `json:"least,omitempty"` // time that the modelled roofs allow
	Binds  string            `json:"binds,omitempty"`
}

// shownOf gathers the results that are drawn, runs and results by time.
func shownOf(entries []store.Entry) any {
	out := struct {
		Runs    []shownRun `json:"runs"`
		Results []shown    `json:"results"`
		Band    float64    `json:"band"` // part of a time that counts as noise
	}{[]shownRun{}, []shown{}, compare.DefaultBand}
	at := map[string]int{}
	for _, p := range points(entries) {
		i, ok := at[p.run.ID]
		if !ok {
			i = len(out.Runs)
			at[p.run.ID] = i
			out.Runs = append(out.Runs, shownRun{p.run.Started.Unix(), p.device, p.run.Env.Driver, p.run.Env.Commit,
				"greta " + strings.Join(p.run.Command, " ")})
		}
		r := shown{Run: i, Bench: p.Bench, Params: p.Params, Config: p.Config, Kernel: p.Kernel, Cache: p.Cache,
			Clock: p.Clock,
			Time:  p.time.Median, Lo: finite(p.time.Lo), Hi: finite(p.time.Hi), N: len(p.Samples), Bytes: finite(p.Bytes),
			Flops: finite(p.Flops), Set: finite(p.WorkingSet)}
		if r.Params == nil {
			r.Params = map[string]string{}
		}
		if least, binds := p.Roofs.Least(p.Bytes, p.Flops, false); binds != "" {
			r.Least, r.Binds = finite(least), binds
		}
		out.Results = append(out.Results, r)
	}
	return out
}

// finite gives 0 for what JSON has no word for.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
