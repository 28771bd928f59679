package report

import (
	"strings"
	"unicode/utf8"
)

// Table prints aligned columns for a terminal.
type Table struct {
	left []bool // whether a column is aligned left
	rows [][]string
}

// NewTable makes a table. A column whose head starts with "<" is aligned
// left, the others right, as numbers want.
func NewTable(head ...string) *Table {
	t := &Table{}
	row := make([]string, len(head))
	for i, h := range head {
		text, left := strings.CutPrefix(h, "<")
		t.left = append(t.left, left)
		row[i] = text
	}
	t.rows = append(t.rows, row)
	return t
}

// Row appends a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// String gives the table with two spaces between columns and none behind the last.
func (t *Table) String() string {
	width := make([]int, len(t.left))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range t.rows {
		var line strings.Builder
		for i, c := range r {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.left[i] {
				line.WriteString(c + pad)
			} else {
				line.WriteString(pad + c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}
