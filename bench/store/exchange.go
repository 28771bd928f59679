package store

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
)

// Bundle is a run with its results: what travels from one store to another.
type Bundle struct {
	record.Run
	Results []record.Result `json:"results"`
}

// Exchange is the file that takes bundles from machine to machine.
type Exchange struct {
	Format string   `json:"format"` // ExchangeFormat
	Runs   []Bundle `json:"runs"`
}

// ExchangeFormat names the file's kind and version.
const ExchangeFormat = "greta-bench/1"

// Bundles gives the runs that match with those of their results that match.
func (s *Store) Bundles(f Filter) ([]Bundle, error) {
	runs, err := s.Runs(f)
	if err != nil {
		return nil, err
	}
	entries, err := s.Results(f)
	if err != nil {
		return nil, err
	}
	out := make([]Bundle, len(runs))
	at := map[string]*Bundle{}
	for i, r := range runs {
		out[i] = Bundle{r, []record.Result{}}
		at[r.ID] = &out[i]
	}
	for _, e := range entries {
		if b := at[e.Run.ID]; b != nil {
			b.Results = append(b.Results, e.Result)
		}
	}
	return out, nil
}

// Absorbed counts what a store took in.
type Absorbed struct {
	Runs    int `json:"runs"`    // new ones
	Known   int `json:"known"`   // runs that were there already
	Results int `json:"results"` // new ones, also of known runs that had not ended
	// Refused counts those of Results that were called OK and are not, by the rules of package guard.
	Refused int `json:"refused,omitempty"`
}

// Absorb adds bundles. A run that is there already is not added again; if it had
// not ended when it came the first time, what it measured since then is added. One
// whose results differ from those that are there is refused, and nothing of it is kept.
// Each result is judged by the rules of a run, whatever its file says of it: one that is
// no right result of a right measurement is kept as refused, with the reason.
func (s *Store) Absorb(bundles []Bundle) (Absorbed, error) {
	var sum Absorbed
	for i := range bundles {
		b := &bundles[i]
		if b.ID == "" || b.Started.IsZero() {
			return sum, fmt.Errorf("run %d has no identity or no time", i+1)
		}
		if err := guard.Dates(&b.Run, time.Now()); err != nil {
			return sum, fmt.Errorf("run %s: %w", b.ID, err)
		}
	}
	for i := range bundles {
		b := &bundles[i]
		for {
			have, err := s.one(b.ID)
			if err != nil {
				return sum, err
			}
			added, refused, err := s.absorb(b, have)
			if err != nil {
				// Another process may have taken in the same between the two: then what is here
				// has changed, and is looked at again.
				if now, e := s.one(b.ID); e == nil && grown(have, now) {
					continue
				}
				return sum, err
			}
			sum.Results += added
			sum.Refused += refused
			if have != nil {
				sum.Known++
			} else {
				sum.Runs++
			}
			break
		}
	}
	return sum, nil
}

// one gives the run of an identity with its results, nil where there is none.
func (s *Store) one(id string) (*Bundle, error) {
	have, err := s.Bundles(Filter{Run: id})
	if err != nil {
		return nil, err
	}
	for i := range have {
		if have[i].ID == id {
			return &have[i], nil
		}
	}
	return nil, nil
}

// grown tells whether a run has more than it had.
func grown(before, now *Bundle) bool {
	if before == nil || now == nil {
		return now != nil
	}
	return len(now.Results) > len(before.Results) || before.Ended.IsZero() && !now.Ended.IsZero()
}

// absorb adds what is new of a bundle to what is there of it, nil for nothing, and counts the results.
func (s *Store) absorb(b, have *Bundle) (added, refused int, err error) {
	from := 0
	results := judged(b, b.Results)
	if have != nil {
		if err := sameResults(b, have.Results); err != nil {
			return 0, 0, fmt.Errorf("run %s: %w", b.ID, err)
		}
		from = min(len(have.Results), len(b.Results))
	}
	for k := from; k < len(results); k++ {
		if results[k].Verdict != b.Results[k].Verdict {
			refused++
		}
	}
	return len(results) - from, refused, s.transact(func(tx *sql.Tx) error {
		if have == nil {
			if err := insertRun(tx, &b.Run); err != nil {
				return err
			}
		} else if from < len(b.Results) {
			// Results have no number of their own: that nobody added them meanwhile is to be seen here.
			var n int
			if err := tx.QueryRow(`SELECT count(*) FROM results WHERE run = ?`, b.ID).Scan(&n); err != nil {
				return err
			}
			if n != len(have.Results) {
				return fmt.Errorf("run %s: it has %d results now, %d a moment ago", b.ID, n, len(have.Results))
			}
		}
		for k := from; k < len(b.Results); k++ {
			if err := insertResult(tx, b.ID, &results[k]); err != nil {
				return err
			}
		}
		if !b.Ended.IsZero() && (have == nil || have.Ended.IsZero()) {
			return insertEnd(tx, b.ID, b.Ended, b.Status)
		}
		return nil
	})
}

// judged gives results of a run as a run of this machine would have kept them: what is
// called OK and breaks a rule of package guard is refused. What is not OK stays as it is.
func judged(b *Bundle, results []record.Result) []record.Result {
	out := slices.Clone(results)
	for i := range out {
		r := &out[i]
		if r.Verdict != record.OK {
			continue
		}
		guard.Fallback(r, b.Env.Backend)
		guard.Finish(r)
		guard.Imported(r, &b.Run)
		if r.Verdict != record.OK {
			r.Verdict, r.Reason = record.Refused, "its file calls it ok: "+r.Reason
		}
	}
	return out
}

// sameResults compares what two versions of a run have in common, as they are judged now: a
// store may hold what came in before the rules did.
func sameResults(b *Bundle, have []record.Result) error {
	have, theirs := judged(b, have), judged(b, b.Results)
	for i := range min(len(have), len(b.Results)) {
		x, err := json.Marshal(&have[i])
		if err != nil {
			return err
		}
		y, err := json.Marshal(&theirs[i])
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			return fmt.Errorf("result %d (%s) is not the one that this store has for it: the identity was used twice, or the "+
				"file was changed", i+1, b.Results[i].Name())
		}
	}
	return nil
}

// WriteExchange writes bundles as a file that ReadExchange reads.
func WriteExchange(w io.Writer, bundles []Bundle) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(Exchange{ExchangeFormat, bundles})
}

// ReadExchange reads a file of bundles: one that WriteExchange wrote, or another
// store. The file is left as it is.
func ReadExchange(path string) ([]Bundle, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(head[:n]) == "SQLite format 3\x00" {
		return readStore(path)
	}
	strange := func(err error) error {
		return fmt.Errorf("%s is neither a store of results nor a file of greta export json: %w", path, err)
	}
	// Looked at first, so that nothing large, or without an end, is read for nothing.
	if begin := bytes.TrimLeft(head[:n], " \t\r\n"); len(begin) == 0 || begin[0] != '{' {
		return nil, strange(errors.New("it does not begin as one of them"))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, strange(err)
	}
	if kind.Format != ExchangeFormat { // first: another version may have other fields
		return nil, fmt.Errorf("%s: its format is %q, this greta reads %q", path, kind.Format, ExchangeFormat)
	}
	var x Exchange
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return nil, strange(err)
	}
	for i := range x.Runs {
		if err := x.Runs[i].check(); err != nil {
			return nil, fmt.Errorf("%s: run %d (%s): %w", path, i+1, x.Runs[i].ID, err)
		}
	}
	return x.Runs, nil
}

// check refuses what no greta writes, so that an edited or damaged file cannot become the
// best ever: the store keeps what it takes for good.
func (b *Bundle) check() error {
	switch {
	case b.ID == "" || b.Started.IsZero():
		return errors.New("it has no identity or no time")
	case !slices.Contains([]record.Status{record.Complete, record.Incomplete, record.Broken}, b.Status):
		return fmt.Errorf("its status is %q; there are complete, incomplete and failed", b.Status)
	}
	for i := range b.Results {
		r := &b.Results[i]
		bad := func(text string, a ...any) error {
			return fmt.Errorf("result %d (%s): %s", i+1, r.Name(), fmt.Sprintf(text, a...))
		}
		switch {
		case r.Bench == "":
			return bad("it names no benchmark")
		case !slices.Contains([]record.Verdict{record.OK, record.Failed, record.Skipped, record.Refused}, r.Verdict):
			return bad("its verdict is %q; there are ok, failed, skipped and refused", r.Verdict)
		case r.Verdict == record.OK && len(r.Samples) == 0:
			return bad("it is ok without a sample")
		case r.Verdict == record.OK && slices.Min(r.Samples) <= 0:
			return bad("it is ok with a sample of %g s: times are positive", slices.Min(r.Samples))
		}
	}
	return nil
}

// readStore reads a copy of another store, since reading a store may change its
// schema and make files beside it.
func readStore(path string) ([]Bundle, error) {
	dir, err := os.MkdirTemp("", "greta-import")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, tail := range []string{"", "-wal"} {
		err := copyFile(filepath.Join(dir, "bench.sqlite"+tail), path+tail)
		if err != nil && !(tail != "" && errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	s, err := Open(filepath.Join(dir, "bench.sqlite"))
	if err == nil {
		defer s.Close()
		var bundles []Bundle
		if bundles, err = s.Bundles(Filter{}); err == nil {
			return bundles, nil
		}
	}
	var e *storeError
	if errors.As(err, &e) {
		e.path = path
	}
	return nil, err
}

func copyFile(to, from string) error {
	in, err := plainfile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := plainfile.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errlist.Join(err, out.Close())
}

// Dump writes the store as SQL text that makes it anew, schema and all.
func (s *Store) Dump(w io.Writer, f Filter) error {
	bundles, err := s.Bundles(f)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "-- greta bench, %s\nBEGIN;\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;\n",
		time.Now().UTC().Format(time.RFC3339), applicationID, len(migrations)); err != nil {
		return err
	}
	for _, m := range migrations {
		if _, err := fmt.Fprintln(w, m); err != nil {
			return err
		}
	}
	for _, table := range []struct{ name, key string }{{"runs", "id"}, {"ends", "run"}, {"results", "run"}} {
		for _, b := range bundles {
			if err := s.dumpRows(w, table.name, table.key, b.ID, &f); err != nil {
				return err
			}
		}
	}
	_, err = io.WriteString(w, "COMMIT;\n")
	return err
}

// dumpRows writes the rows of a table that belong to a run, as SQLite itself quotes them.
func (s *Store) dumpRows(w io.Writer, table, key, run string, f *Filter) error {
	var columns []string
	err := s.query(`SELECT name FROM pragma_table_info(?)`, []any{table}, func(rows *sql.Rows) error {
		var c string
		err := rows.Scan(&c)
		columns = append(columns, c)
		return err
	})
	if err != nil {
		return err
	}
	names, values := "", ""
	for i, c := range columns {
		if i > 0 {
			names, values = names+", ", values+` || ',' || `
		}
		names, values = names+c, values+"quote(x."+c+")"
	}
	from, args := table+" x WHERE x."+key+" = ?", []any{run}
	if table == "results" {
		g := Filter{Bench: f.Bench, Verdict: f.Verdict, Run: run}
		cond, a := g.where(true)
		from, args = "results x JOIN runs r ON r.id = x.run"+cond, a
	}
	return s.query(`SELECT `+values+` FROM `+from+` ORDER BY x.rowid`, args, func(rows *sql.Rows) error {
		var v string
		if err := rows.Scan(&v); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "INSERT INTO %s (%s) VALUES (%s);\n", table, names, v)
		return err
	})
}
