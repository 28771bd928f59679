package report

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table prints aligned columns for a terminal, without frames.
type Table struct{ w table.Writer }

// NewTable makes a table. A column whose head starts with "<" is aligned
// left, the others right, as numbers want.
func NewTable(head ...string) *Table {
	t := &Table{table.NewWriter()}
	style := table.Style{Name: "plain", Box: table.BoxStyle{PaddingRight: "  "},
		Options: table.OptionsNoBordersAndSeparators}
	t.w.SetStyle(style)
	t.w.SuppressTrailingSpaces()
	config := make([]table.ColumnConfig, len(head))
	names := make([]string, len(head))
	for i, h := range head {
		name, left := strings.CutPrefix(h, "<")
		config[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
		if left {
			config[i].Align, config[i].AlignHeader = text.AlignLeft, text.AlignLeft
		}
		names[i] = name
	}
	t.w.SetColumnConfigs(config)
	t.Row(names...)
	return t
}

// Row appends a row.
func (t *Table) Row(cells ...string) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	t.w.AppendRow(row)
}

// String gives the table, a line each row.
func (t *Table) String() string { return t.w.Render() + "\n" }
