// Package store keeps what benchmarks measured: a SQLite file that only grows.
//
// A run is a row of runs when it begins, its results are rows of results, each in
// a transaction of its own as soon as it is there, and its end is a row of ends. A
// run without an end was killed, or is under way; what it had measured is kept.
// Triggers refuse every UPDATE and DELETE.
package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// Store is an open file. Several processes may have it open and write at once.
type Store struct {
	db   *sql.DB
	path string
}

// DefaultPath is where results are kept unless the user names a file:
// greta/bench.sqlite in the user's data folder.
func DefaultPath() (string, error) {
	dir := os.Getenv("XDG_DATA_HOME")
	if dir == "" || !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place for results: %w; name a file by --store", err)
		}
		switch runtime.GOOS {
		case "darwin":
			dir = filepath.Join(home, "Library", "Application Support")
		case "windows":
			if dir = os.Getenv("LocalAppData"); dir == "" {
				dir = filepath.Join(home, "AppData", "Local")
			}
		default:
			dir = filepath.Join(home, ".local", "share")
		}
	}
	return filepath.Join(dir, "greta", "bench.sqlite"), nil
}

// patience is how long a writer waits for the others, milliseconds.
const patience = 30_000

// Open opens a store to write and read, and makes it, with its folder, where there
// is none. An older schema is brought up to date.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("the store of results: %w; name another file by --store", err)
	}
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return nil, fmt.Errorf("the store of results: %s is no file", path)
	}
	s, err := connect(path, "mode=rwc&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		s.db.Close()
		return nil, s.explain(err)
	}
	return s, nil
}

// OpenExisting opens a store that must be there, to read it above all: where it may
// not be written it can still be read. The error is fs.ErrNotExist where there is none.
func OpenExisting(path string) (*Store, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: nothing has been measured yet (greta bench writes this file): %w", path, fs.ErrNotExist)
	}
	s, err := Open(path)
	var e *sqlite.Error
	if err == nil || !errors.As(err, &e) || e.Code()&0xff != codeReadOnly && e.Code()&0xff != codeCantOpen {
		return s, err
	}
	// Nobody else writes what cannot be written; without that promise SQLite
	// wants to make files beside this one.
	if s, err = connect(path, "mode=ro&immutable=1"); err != nil {
		return nil, err
	}
	version, err := s.version()
	if err == nil && version < len(migrations) {
		err = fmt.Errorf("its schema is %d, %d is current, and it cannot be written: copy it to where it can", version,
			len(migrations))
	}
	if err != nil {
		s.db.Close()
		return nil, s.explain(err)
	}
	return s, nil
}

func connect(path, query string) (*Store, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive
	}
	dsn := (&url.URL{Scheme: "file", Path: slashed,
		RawQuery: query + fmt.Sprintf("&_pragma=busy_timeout(%d)&_pragma=foreign_keys(1)", patience)}).String()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // its pragmas belong to a connection
	return &Store{db, path}, nil
}

// Path is the store's file.
func (s *Store) Path() string { return s.path }

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Writer adds the results of one run.
type Writer struct {
	s     *Store
	run   record.Run
	ended bool
}

// Begin notes that a run has begun.
func (s *Store) Begin(r record.Run) (*Writer, error) {
	if r.ID == "" || r.Started.IsZero() {
		return nil, fmt.Errorf("a run needs an identity and a time: %+v", r)
	}
	err := s.transact(func(tx *sql.Tx) error { return insertRun(tx, &r) })
	if err != nil {
		return nil, err
	}
	return &Writer{s: s, run: r}, nil
}

// Add keeps a result. One whose verdict nobody has given gets it by the rules of
// package guard first, and a kernel of another backend than the run's makes it skipped.
func (w *Writer) Add(r *record.Result) error {
	if w.ended {
		return fmt.Errorf("run %s has ended: no result can be added", w.run.ID)
	}
	if r.Verdict == "" || r.Verdict == record.OK {
		guard.Fallback(r, w.run.Env.Backend)
		guard.Finish(r)
	}
	return w.s.transact(func(tx *sql.Tx) error { return insertResult(tx, w.run.ID, r) })
}

// End notes that the run has ended. A second call does nothing.
func (w *Writer) End(status record.Status) error {
	if w.ended {
		return nil
	}
	w.ended = true
	return w.s.transact(func(tx *sql.Tx) error { return insertEnd(tx, w.run.ID, time.Now(), status) })
}

// transact runs f in a transaction that has the right to write from its beginning.
func (s *Store) transact(f func(*sql.Tx) error) error {
	tx, err := s.db.Begin()
	if err != nil {
		return s.explain(err)
	}
	if err := f(tx); err != nil {
		tx.Rollback()
		return s.explain(err)
	}
	return s.explain(tx.Commit())
}

// timeFormat sorts as text.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

func insertRun(tx *sql.Tx, r *record.Run) error {
	command, err := json.Marshal(r.Command)
	if err != nil {
		return err
	}
	env, err := json.Marshal(r.Env)
	if err != nil {
		return err
	}
	e := &r.Env
	_, err = tx.Exec(
		`INSERT INTO runs (id, kind, command, profile, label, started, host, backend, device, device_id, level, driver,
			kernels, version, commit_id, env)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		r.ID, r.Kind, string(command), r.Profile, r.Label, r.Started.UTC().Format(timeFormat),
		e.Host, e.Backend, e.Device, e.DeviceID, e.Level, e.Driver, e.Kernels, e.Version, e.Commit, string(env))
	return err
}

func insertEnd(tx *sql.Tx, run string, at time.Time, status record.Status) error {
	_, err := tx.Exec(`INSERT INTO ends (run, ended, status) VALUES (?,?,?)`, run, at.UTC().Format(timeFormat),
		string(status))
	return err
}

func insertResult(tx *sql.Tx, run string, r *record.Result) error {
	// JSON has no word for what is no finite number; such a result has failed, and
	// its reason says where.
	metrics := maps.Clone(r.Metrics)
	maps.DeleteFunc(metrics, func(_ string, x float64) bool { return !isFinite(x) })
	var texts [5]string
	for i, v := range []any{r.Params, finiteOnly(r.Samples), finiteOnly(r.Host), r.Roofs, metrics} {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("result %s: %w", r.Name(), err)
		}
		texts[i] = string(data)
	}
	m := stats.Summarize(finiteOnly(r.Samples))
	finite := func(x float64) any {
		if !isFinite(x) {
			return nil
		}
		return x
	}
	_, err := tx.Exec(
		`INSERT INTO results (run, bench, name, params, config, kernel, backend, clock, cache, n, median_s, lo_s, hi_s,
			samples, host,
		bytes, flops, roofs, against, rel_l2, max_abs, rel_limit, metrics, verdict, reason, working_set)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		run, r.Bench, r.Name(), texts[0], r.Config, r.Kernel, r.Backend, r.Clock, r.Cache, m.N, m.Median, m.Lo, m.Hi,
		texts[1], texts[2],
		r.Bytes, r.Flops, texts[3], r.Check.Against, finite(r.Check.RelL2), finite(r.Check.MaxAbs), r.Check.Limit, texts[4],
		string(r.Verdict), r.Reason, r.WorkingSet)
	return err
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// finiteOnly leaves out what is no finite number.
func finiteOnly(x []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(x), func(v float64) bool { return !isFinite(v) })
}
