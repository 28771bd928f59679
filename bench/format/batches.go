package format

import (
	"fmt"

	"github.com/greta-project/greta/bench/record"
)

// What the results of many sequences at once have beside their times.
const (
	Sequences  = "n_sequences"
	PromptTime = "t_pp_s"      // median time of all prompts
	GenTime    = "t_tg_s"      // median time of all tokens behind them
	StepRows   = "rows_a_step" // in decode
	HostStep   = "host_s"      // median time of a step of decode outside of the device
	WriteStep  = "write_s"     // of that step in the device: writing inputs,
	SubmitStep = "submit_s"    // giving commands to the driver,
	WaitStep   = "wait_s"      // waiting for their end,
	ReadStep   = "read_s"      // and reading results
	FloorShare = "floor_share" // of decode: the time in which weights and caches are read, over the time it took
)

// Batches is the report of many sequences at once: the columns of llama-batched-bench, and some of our own.
func Batches(run *record.Run, results []record.Result) *Report {
	r := &Report{Run: run, Results: results, Notes: notes(results)}
	full := &Table{Name: "llama_batched_bench"}
	people := &Table{Columns: []Column{{"model", true}}}
	for _, name := range []string{"PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s",
		"of the floor", "rows a step", "host a step", "rel L2"} {
		people.Columns = append(people.Columns, Column{name, false})
	}
	people.Columns = append(people.Columns, Column{"verdict", true})
	for _, name := range []string{"model", "type_k", "backend", "n_depth", "pp", "tg", "pl", "n_kv", "t_pp", "speed_pp",
		"t_tg", "speed_tg", "t", "speed", "floor_share", "rows_a_step", "host_ns", "write_ns", "submit_ns", "wait_ns",
		"read_ns", "check_against", "rel_l2", "max_abs", "verdict", "reason", "run"} {
		full.Columns = append(full.Columns, Column{Name: name})
	}
	for i := range results {
		t := &results[i]
		m := t.Metrics
		pp, tg, b, d := m[Positions], m[Generated], m[Sequences], m[Depth]
		kv, prompt, gen := b*(d+pp+tg), m[PromptTime], m[GenTime]
		model := t.Params["model"] + " " + t.Params["type"]
		if d > 0 {
			people.Rows = append(people.Rows, []any{fmt.Sprintf("%s @ d%d", model, int(d))})
		} else {
			people.Rows = append(people.Rows, []any{model})
		}
		row := &people.Rows[len(people.Rows)-1]
		*row = append(*row, int(pp), int(tg), int(b), int(kv))
		if t.Verdict == record.OK {
			*row = append(*row, fixed(prompt), fixed(b*pp/prompt), fixed(gen), fixed(b*tg/gen), fixed(prompt+gen),
				fixed(b*(pp+tg)/(prompt+gen)), percent(m[FloorShare]), fixed(m[StepRows]), Seconds(m[HostStep]))
		} else {
			*row = append(*row, nil, nil, nil, nil, nil, nil, nil, nil, nil)
		}
		*row = append(*row, relL2(t), verdict(t))
		full.Rows = append(full.Rows, []any{model, t.Params["kv"], run.Env.Backend, int(d), int(pp), int(tg), int(b), int(kv),
			prompt, b * pp / prompt, gen, b * tg / gen, prompt + gen, b * (pp + tg) / (prompt + gen), m[FloorShare], m[StepRows],
			1e9 * m[HostStep], 1e9 * m[WriteStep], 1e9 * m[SubmitStep], 1e9 * m[WaitStep], 1e9 * m[ReadStep], t.Check.Against,
			t.Check.RelL2, t.Check.MaxAbs, string(t.Verdict), t.Reason, run.ID})
	}
	people.dropEmpty()
	r.People, r.Full = []*Table{people}, full
	return r
}

// fixed prints a number as llama-batched-bench does, with three digits behind the point, fewer of a large one.
func fixed(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3f", x)
}
