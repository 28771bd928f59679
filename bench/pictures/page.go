package pictures

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

//go:embed page.html
var pageText string

//go:embed page.js
var script string

var page = template.Must(template.New("page").Parse(pageText))

// Page writes a self-contained HTML page of all pictures with their figures, the
// runs that they come from, and the results that are not OK with the reasons. It
// asks for nothing from any network, and follows the reader's light or dark. Above the
// pictures results are chosen, looked at and compared (page.js).
// now is printed as the time of making.
func Page(w io.Writer, title string, entries []store.Entry, now time.Time) error {
	pics, err := Draw("", entries)
	if err != nil {
		return err
	}
	type figure struct {
		*Picture
		ID  string
		SVG template.HTML
	}
	type run struct {
		*record.Run
		When, Device, Command string
		Results, Bad          int
	}
	type bad struct{ Name, Device, Verdict, Reason string }
	interactive, err := json.Marshal(shownOf(entries))
	if err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(script))
	data := struct {
		Title, Made string
		Data        template.JS // JSON, in which < is written as an escape
		Script      template.JS
		ScriptHash  string
		Figures     []figure
		Runs        []*run
		Bad         []bad
		Results     int
	}{Title: title, Made: now.UTC().Format("2006-01-02 15:04 UTC"), Results: len(entries), Data: template.JS(interactive),
		Script:     template.JS(script),
		ScriptHash: "sha256-" + base64.StdEncoding.EncodeToString(hash[:])}
	for i, p := range pics {
		// made by us: names in it are escaped by its writer
		data.Figures = append(data.Figures, figure{p, fmt.Sprintf("%s-%d", p.Name, i+1), template.HTML(p.svg())})
	}
	at := map[string]*run{}
	for i := range entries {
		e := &entries[i]
		r := at[e.Run.ID]
		if r == nil {
			r = &run{Run: e.Run, When: when(e.Run.Started), Device: e.Run.Env.On(),
				Command: "greta " + strings.Join(e.Run.Command, " ")}
			at[e.Run.ID] = r
			data.Runs = append(data.Runs, r)
		}
		r.Results++
		if e.Verdict != record.OK {
			r.Bad++
			data.Bad = append(data.Bad, bad{e.Name(), r.Device, string(e.Verdict), e.Reason})
		}
	}
	slices.SortFunc(data.Runs, func(a, b *run) int { return strings.Compare(a.ID, b.ID) })
	return page.Execute(w, data)
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
