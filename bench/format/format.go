// Package format writes the results of benchmarks: Markdown for people, CSV, JSON,
// JSON lines and SQL for programs, and lines that benchstat reads. The columns of
// models are those of llama-bench, so that what reads its files reads these.
package format

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/graph/lang"
)

// Names are the formats.
var Names = []string{"md", "csv", "json", "jsonl", "sql", "benchstat"}

// Check refuses what is no format.
func Check(name string) error {
	for _, n := range Names {
		if n == name {
			return nil
		}
	}
	hint := ""
	if near := lang.Nearest(name, Names); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("format %q is not known%s; there are %s", name, hint, strings.Join(Names, ", "))
}

// Column is a column of a table.
type Column struct {
	Name string
	Left bool // aligned left, as words are; numbers are aligned right
}

// Table is rows of values: strings, ints, bools, float64s, []float64, or nil
// where there is none.
type Table struct {
	Name    string // of the table in SQL
	Columns []Column
	Rows    [][]any
}

// Report is what one run measured, in the forms that the formats need.
type Report struct {
	Run     *record.Run
	Results []record.Result
	People  []*Table // for Markdown,
	Notes   []string // below them
	Full    *Table   // for programs
}

// Write writes a report in a format.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "md":
		for i, t := range r.People {
			if i > 0 {
				if _, err := io.WriteString(w, "\n"); err != nil {
					return err
				}
			}
			if err := t.markdown(w); err != nil {
				return err
			}
		}
		for i, n := range r.Notes {
			gap := ""
			if i == 0 {
				gap = "\n"
			}
			if _, err := fmt.Fprintf(w, "%s- %s\n", gap, strings.Join(strings.Fields(n), " ")); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return r.Full.csv(w)
	case "json":
		return r.Full.json(w)
	case "jsonl":
		return r.Full.jsonl(w)
	case "sql":
		return r.Full.sql(w)
	case "benchstat":
		return Benchstat(w, r.Run, r.Results)
	}
	return Check(format)
}

// text prints a value for Markdown and CSV.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return ""
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []float64:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = text(x)
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprint(v)
}

// dropEmpty takes out the columns in which nothing stands.
func (t *Table) dropEmpty() {
	for i := len(t.Columns) - 1; i >= 0; i-- {
		if slices.ContainsFunc(t.Rows, func(r []any) bool { return text(r[i]) != "" }) {
			continue
		}
		t.Columns = slices.Delete(t.Columns, i, i+1)
		for k := range t.Rows {
			t.Rows[k] = slices.Delete(t.Rows[k], i, i+1)
		}
	}
}

func (t *Table) markdown(w io.Writer) error {
	width := make([]int, len(t.Columns))
	cell := func(v any) string {
		return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text(v))
	}
	for i, c := range t.Columns {
		width[i] = max(3, utf8.RuneCountInString(c.Name))
		for _, r := range t.Rows {
			width[i] = max(width[i], utf8.RuneCountInString(cell(r[i])))
		}
	}
	var b strings.Builder
	line := func(cells func(i int) string) {
		b.WriteString("|")
		for i, c := range t.Columns {
			s := cells(i)
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if c.Left {
				b.WriteString(" " + s + pad + " |")
			} else {
				b.WriteString(" " + pad + s + " |")
			}
		}
		b.WriteString("\n")
	}
	line(func(i int) string { return t.Columns[i].Name })
	line(func(i int) string {
		if t.Columns[i].Left {
			return strings.Repeat("-", width[i])
		}
		return strings.Repeat("-", width[i]-1) + ":"
	})
	for _, r := range t.Rows {
		line(func(i int) string { return cell(r[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	head := make([]string, len(t.Columns))
	for i := range t.Columns {
		head[i] = t.Columns[i].Name
	}
	if err := c.Write(head); err != nil {
		return err
	}
	for _, r := range t.Rows {
		cells := make([]string, len(r))
		for i, v := range r {
			cells[i] = text(v)
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// object writes a row with the columns as keys, in their order.
func (t *Table) object(row []any) ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range row {
		if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			v = nil
		}
		key, err := json.Marshal(t.Columns[i].Name)
		if err != nil {
			return nil, err
		}
		val, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(key)
		b.WriteString(": ")
		b.Write(val)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

func (t *Table) json(w io.Writer) error {
	var b strings.Builder
	b.WriteString("[")
	for i, r := range t.Rows {
		o, err := t.object(r)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  ")
		b.Write(o)
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) jsonl(w io.Writer) error {
	for _, r := range t.Rows {
		o, err := t.object(r)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(o, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) sql(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (\n", t.Name)
	for i, c := range t.Columns {
		kind := "TEXT"
		for _, r := range t.Rows {
			switch r[i].(type) {
			case int, bool:
				kind = "INTEGER"
			case float64:
				kind = "REAL"
			}
		}
		comma := ","
		if i == len(t.Columns)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "  %s %s%s\n", c.Name, kind, comma)
	}
	b.WriteString(");\n")
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "\nINSERT INTO %s (", t.Name)
		for i, c := range t.Columns {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(c.Name)
		}
		b.WriteString(") VALUES (")
		for i, v := range r {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(literal(v))
		}
		b.WriteString(");\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case bool:
		if v {
			return "1"
		}
		return "0"
	case int:
		return strconv.Itoa(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "NULL"
		}
		return text(v)
	}
	return "'" + strings.ReplaceAll(text(v), "'", "''") + "'"
}
