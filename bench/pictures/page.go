package pictures

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// Page writes a self-contained HTML page of all pictures with their figures, the
// runs that they come from, and the results that are not OK with the reasons. It
// asks for nothing from any network, and follows the reader's light or dark.
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
	data := struct {
		Title, Made string
		Figures     []figure
		Runs        []*run
		Bad         []bad
		Results     int
	}{Title: title, Made: now.UTC().Format("2006-01-02 15:04 UTC"), Results: len(entries)}
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
