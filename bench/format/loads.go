package format

import (
	"fmt"

	"github.com/greta-project/greta/bench/record"
)

// What the results of a load have beside those of batches.
const (
	Arrivals      = "arrivals_a_second"
	Requests      = "requests"
	LoadTime      = "load_s" // from the first arrival to the last token
	FirstMedian   = "first_token_median_s"
	FirstP95      = "first_token_p95_s"
	BetweenMedian = "between_tokens_median_s"
	BetweenP95    = "between_tokens_p95_s"
)

// Loads is the report of requests that come at random.
func Loads(run *record.Run, results []record.Result) *Report {
	r := &Report{Run: run, Results: results, Notes: notes(results)}
	people := &Table{Columns: []Column{{"model", true}}}
	for _, name := range []string{"PP", "TG", "B", "arrivals/s", "requests", "tokens/s", "first token", "p95",
		"between tokens", "p95 ", "rows a step", "rel L2"} {
		people.Columns = append(people.Columns, Column{name, false})
	}
	people.Columns = append(people.Columns, Column{"verdict", true})
	full := &Table{Name: "loads"}
	for _, name := range []string{"model", "type_k", "backend", "n_depth", "pp", "tg", "pl", "arrivals", "requests",
		"seconds", "speed", "ttft_p50", "ttft_p95", "itl_p50", "itl_p95", "rows_a_step", "check_against", "rel_l2",
		"max_abs", "verdict", "reason", "run"} {
		full.Columns = append(full.Columns, Column{Name: name})
	}
	for i := range results {
		t := &results[i]
		m := t.Metrics
		model := t.Params["model"] + " " + t.Params["type"]
		speed := m[Requests] * m[Generated] / m[LoadTime]
		row := []any{model, int(m[Positions]), int(m[Generated]), int(m[Sequences]), fmt.Sprintf("%g", m[Arrivals]),
			int(m[Requests]), fixed(speed)}
		for _, name := range []string{FirstMedian, FirstP95, BetweenMedian, BetweenP95} {
			if v, ok := m[name]; ok {
				row = append(row, Seconds(v))
			} else {
				row = append(row, nil)
			}
		}
		people.Rows = append(people.Rows, append(row, fixed(m[StepRows]), relL2(t), verdict(t)))
		full.Rows = append(full.Rows, []any{model, t.Params["kv"], run.Env.Backend, int(m[Depth]), int(m[Positions]),
			int(m[Generated]), int(m[Sequences]), m[Arrivals], int(m[Requests]), m[LoadTime], speed, m[FirstMedian], m[FirstP95],
			m[BetweenMedian], m[BetweenP95], m[StepRows], t.Check.Against, t.Check.RelL2, t.Check.MaxAbs, string(t.Verdict),
			t.Reason, run.ID})
	}
	people.dropEmpty()
	r.People, r.Full = []*Table{people}, full
	return r
}
