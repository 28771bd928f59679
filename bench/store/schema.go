package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
)

// applicationID marks the file as greta's: "gret".
const applicationID = 0x67726574

// migrations bring a file from one schema to the next; how many have been applied
// is SQLite's user_version. One that was released is never changed.
var migrations = []string{
	`CREATE TABLE runs (
		seq       INTEGER PRIMARY KEY,
		id        TEXT NOT NULL UNIQUE,
		kind      TEXT NOT NULL,
		command   TEXT NOT NULL,            -- JSON: arguments
		profile   TEXT NOT NULL,
		label     TEXT NOT NULL,
		started   TEXT NOT NULL,            -- UTC, RFC 3339
		host      TEXT NOT NULL,
		backend   TEXT NOT NULL,
		device    TEXT NOT NULL,
		device_id TEXT NOT NULL,
		level     TEXT NOT NULL,
		driver    TEXT NOT NULL,
		kernels   TEXT NOT NULL,
		version   TEXT NOT NULL,
		commit_id TEXT NOT NULL,
		env       TEXT NOT NULL             -- JSON: all of the environment
	) STRICT;
	CREATE TABLE ends (
		run    TEXT PRIMARY KEY REFERENCES runs(id),
		ended  TEXT NOT NULL,
		status TEXT NOT NULL
	) STRICT;
	CREATE TABLE results (
		seq       INTEGER PRIMARY KEY,
		run       TEXT NOT NULL REFERENCES runs(id),
		bench     TEXT NOT NULL,
		name      TEXT NOT NULL,            -- bench with parameters, cache and config
		params    TEXT NOT NULL,            -- JSON
		config    TEXT NOT NULL,
		kernel    TEXT NOT NULL,
		clock     TEXT NOT NULL,
		cache     TEXT NOT NULL,
		n         INTEGER NOT NULL,
		median_s  REAL NOT NULL,
		lo_s      REAL NOT NULL,
		hi_s      REAL NOT NULL,
		samples   TEXT NOT NULL,            -- JSON: seconds
		host      TEXT NOT NULL,            -- JSON: seconds
		bytes     REAL NOT NULL,
		flops     REAL NOT NULL,
		roofs     TEXT NOT NULL,            -- JSON
		against   TEXT NOT NULL,
		rel_l2    REAL,                     -- NULL: not finite
		max_abs   REAL,
		rel_limit REAL NOT NULL,
		metrics   TEXT NOT NULL,            -- JSON
		verdict   TEXT NOT NULL,
		reason    TEXT NOT NULL
	) STRICT;
	CREATE INDEX results_by_run ON results (run);
	CREATE INDEX results_by_bench ON results (bench, name);
	CREATE TRIGGER runs_stay BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
	CREATE TRIGGER runs_remain BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
	CREATE TRIGGER ends_stay BEFORE UPDATE ON ends BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
	CREATE TRIGGER ends_remain BEFORE DELETE ON ends BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
	CREATE TRIGGER results_stay BEFORE UPDATE ON results BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
	CREATE TRIGGER results_remain BEFORE DELETE ON results BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;`,

	// Which backend's kernel ran, and through how much memory the repetitions went.
	`ALTER TABLE results ADD COLUMN backend TEXT NOT NULL DEFAULT '';
	ALTER TABLE results ADD COLUMN working_set REAL NOT NULL DEFAULT 0;`,
}

// version reads the schema's version, and refuses files that are not ours.
func (s *Store) version() (int, error) {
	var id, version, tables int
	err := s.db.QueryRow(
		`SELECT (SELECT * FROM pragma_application_id), (SELECT * FROM pragma_user_version), (SELECT count(*)
			FROM sqlite_schema)`).Scan(&id, &version, &tables)
	switch {
	case err != nil:
		return 0, err
	case id == 0 && version == 0 && tables == 0:
		return 0, nil // new
	case id != applicationID:
		return 0, fmt.Errorf("it is a database of another program (application_id %#x)", id)
	case version < 0:
		return 0, fmt.Errorf("it is damaged: no greta writes the schema %d", version)
	case version > len(migrations):
		return 0, fmt.Errorf(
			"it was written by a newer greta: its schema is %d, this one knows %d; use that, or another file", version,
			len(migrations))
	}
	return version, nil
}

// prepare brings the file to the current schema.
func (s *Store) prepare() error {
	version, err := s.version()
	if err != nil {
		return err
	}
	// Writers do not stop readers in this mode. Two processes that make a file at the
	// same moment can meet here, where SQLite does not wait.
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := s.db.Exec(`PRAGMA journal_mode=WAL`)
		if err == nil {
			break
		}
		if e := (*sqlite.Error)(nil); !errors.As(err, &e) || e.Code()&0xff != codeBusy ||
			time.Since(start) > patience*time.Millisecond {
			return err
		}
	}
	if version == len(migrations) {
		return nil
	}
	return s.transact(func(tx *sql.Tx) error {
		// Another process may have been faster.
		if err := tx.QueryRow(`PRAGMA user_version`).Scan(&version); err != nil {
			return err
		}
		for i := version; i < len(migrations); i++ {
			if _, err := tx.Exec(migrations[i]); err != nil {
				return fmt.Errorf("from schema %d to %d: %w", i, i+1, err)
			}
		}
		_, err := tx.Exec(fmt.Sprintf(`PRAGMA application_id=%d; PRAGMA user_version=%d`, applicationID,
			max(version, len(migrations))))
		return err
	})
}

// Primary result codes of SQLite.
const (
	codePerm     = 3
	codeBusy     = 5
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// explain says of an error which file it is about, and what to do.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	var told *storeError
	if errors.As(err, &told) {
		return err
	}
	advice, said := "", false
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		switch e.Code() & 0xff {
		case codeFull:
			advice, said = "no space is left for results: make room, or name another file by --store", true
		case codeReadOnly, codePerm, codeCantOpen:
			advice = "it cannot be written: see to the rights of the file and its folder, or name another by --store"
		case codeCorrupt, codeNotADB:
			advice = "it is no store of results, or is damaged: move it away (sqlite3 FILE .recover saves what can be read) " +
				"and start a new one"
		case codeBusy:
			advice = fmt.Sprintf("another process has kept it locked for %d s", patience/1000)
		case codeIO:
			advice = "the file cannot be read or written: see to its disk"
		}
	}
	return &storeError{s.path, advice, err, said}
}

// storeError is an error of the file, with what to do.
type storeError struct {
	path, advice string
	err          error
	said         bool // the advice says all that err does
}

func (e *storeError) Error() string {
	text := "the store of results " + e.path + ": "
	switch {
	case e.said:
		return text + e.advice
	case e.advice != "":
		text += e.advice + ": "
	}
	return text + e.err.Error()
}

func (e *storeError) Unwrap() error { return e.err }
