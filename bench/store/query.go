package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// Filter chooses runs and results; the zero value chooses all. A field that is
// set must match.
type Filter struct {
	Run     string    // identity or its beginning
	Kind    string    // of the run
	Bench   string    // glob on the benchmark or on its name with parameters; * matches slashes too
	Device  string    // part of the device's name, identity or backend, in any case
	Backend string    // exactly
	Host    string    // exactly
	Commit  string    // beginning
	Label   string    // exactly; with * a glob
	Since   time.Time // when the run started, at the earliest
	Until   time.Time // the same, at the latest
	Verdict record.Verdict
}

// where gives the condition of a query over runs r, and results x where those take part.
func (f *Filter) where(results bool) (string, []any) {
	var parts []string
	var args []any
	add := func(cond string, a ...any) {
		parts = append(parts, cond)
		args = append(args, a...)
	}
	if f.Run != "" {
		add(`substr(r.id, 1, ?) = ?`, len(f.Run), f.Run)
	}
	if f.Kind != "" {
		add(`r.kind = ?`, f.Kind)
	}
	if f.Device != "" {
		add(`(instr(lower(r.device), lower(?)) OR instr(lower(r.device_id), lower(?)) OR r.backend = lower(?))`, f.Device,
			f.Device, f.Device)
	}
	if f.Backend != "" {
		add(`r.backend = ?`, f.Backend)
	}
	if f.Host != "" {
		add(`r.host = ?`, f.Host)
	}
	if f.Commit != "" {
		add(`substr(r.commit_id, 1, ?) = ?`, len(f.Commit), f.Commit)
	}
	if f.Label != "" {
		if strings.Contains(f.Label, "*") {
			add(`r.label GLOB ?`, f.Label)
		} else {
			add(`r.label = ?`, f.Label)
		}
	}
	if !f.Since.IsZero() {
		add(`r.started >= ?`, f.Since.UTC().Format(timeFormat))
	}
	if !f.Until.IsZero() {
		add(`r.started <= ?`, f.Until.UTC().Format(timeFormat))
	}
	glob, verdict := `(x.bench GLOB ? OR x.name GLOB ?)`, `x.verdict = ?`
	if !results { // a run is chosen by its results
		glob = `EXISTS (SELECT 1 FROM results x WHERE x.run = r.id AND ` + glob + `)`
		verdict = `EXISTS (SELECT 1 FROM results x WHERE x.run = r.id AND ` + verdict + `)`
	}
	if f.Bench != "" {
		add(glob, f.Bench, f.Bench)
	}
	if f.Verdict != "" {
		add(verdict, string(f.Verdict))
	}
	if len(parts) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(parts, " AND "), args
}

// Runs gives the runs that match, oldest first.
func (s *Store) Runs(f Filter) ([]record.Run, error) {
	where, args := f.where(false)
	var runs []record.Run
	err := s.query(`SELECT r.id, r.kind, r.command, r.profile, r.label, r.started, r.env, e.ended, e.status
		FROM runs r LEFT JOIN ends e ON e.run = r.id`+where+` ORDER BY r.started, r.id`, args, func(rows *sql.Rows) error {
		var r record.Run
		var command, started, env string
		var ended, status sql.NullString
		if err := rows.Scan(&r.ID, &r.Kind, &command, &r.Profile, &r.Label, &started, &env, &ended, &status); err != nil {
			return err
		}
		r.Status = record.Incomplete
		var err error
		if r.Started, err = time.Parse(timeFormat, started); err != nil {
			return err
		}
		if ended.Valid {
			if r.Ended, err = time.Parse(timeFormat, ended.String); err != nil {
				return err
			}
			r.Status = record.Status(status.String)
		}
		if err := json.Unmarshal([]byte(command), &r.Command); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(env), &r.Env); err != nil {
			return err
		}
		runs = append(runs, r)
		return nil
	})
	return runs, err
}

// Entry is a result with the run that it is of.
type Entry struct {
	Run *record.Run
	record.Result
}

// Results gives the results that match in the order of their runs, and in a run in
// that in which they were measured.
func (s *Store) Results(f Filter) ([]Entry, error) {
	runs, err := s.Runs(f)
	if err != nil {
		return nil, err
	}
	byID := map[string]*record.Run{}
	for i := range runs {
		byID[runs[i].ID] = &runs[i]
	}
	where, args := f.where(true)
	var out []Entry
	err = s.query(
		`SELECT x.run, x.bench, x.params, x.config, x.kernel, x.backend, x.clock, x.cache, x.samples,
			x.host, x.bytes, x.flops, x.roofs,
		x.against, x.rel_l2, x.max_abs, x.rel_limit, x.metrics, x.verdict, x.reason, x.working_set
		FROM results x JOIN runs r ON r.id = x.run`+where+` ORDER BY r.started, r.id, x.seq`,
		args, func(rows *sql.Rows) error {
			var e Entry
			var run, params, samples, host, roofs, metrics string
			var rel, abs sql.NullFloat64
			r := &e.Result
			if err := rows.Scan(&run, &r.Bench, &params, &r.Config, &r.Kernel, &r.Backend, &r.Clock, &r.Cache, &samples, &host,
				&r.Bytes, &r.Flops, &roofs,
				&r.Check.Against, &rel, &abs, &r.Check.Limit, &metrics, &r.Verdict, &r.Reason, &r.WorkingSet); err != nil {
				return err
			}
			for _, c := range []struct {
				text string
				to   any
			}{{params, &r.Params}, {samples, &r.Samples}, {host, &r.Host}, {roofs, &r.Roofs}, {metrics, &r.Metrics}} {
				if err := json.Unmarshal([]byte(c.text), c.to); err != nil {
					return fmt.Errorf("a result of run %s: %w", run, err)
				}
			}
			r.Check.RelL2, r.Check.MaxAbs = number(rel), number(abs)
			if e.Run = byID[run]; e.Run != nil { // else it began after the first query
				out = append(out, e)
			}
			return nil
		})
	return out, err
}

func number(x sql.NullFloat64) float64 {
	if !x.Valid {
		return math.NaN()
	}
	return x.Float64
}

func (s *Store) query(text string, args []any, each func(*sql.Rows) error) error {
	rows, err := s.db.Query(text, args...)
	if err != nil {
		return s.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return s.explain(err)
		}
	}
	return s.explain(rows.Err())
}
