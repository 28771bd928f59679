package report

import (
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Table prints aligned columns for a terminal, without frames.
type Table struct {
	left []bool // columns that are aligned left; those behind them are too
	rows [][]string
}

// NewTable makes a table. A column whose head starts with "<" is aligned
// left, the others right, as numbers want.
func NewTable(head ...string) *Table {
	t := &Table{left: make([]bool, len(head))}
	names := make([]string, len(head))
	for i, h := range head {
		names[i], t.left[i] = strings.CutPrefix(h, "<")
	}
	t.Row(names...)
	return t
}

// cellText is what a cell shows of a text that was not made for one.
var cellText = strings.NewReplacer("\t", "    ", "\r\n", "\n", "\r", "\n")

// Row appends a row. A cell may have several lines; the others of its row are empty beside its further ones.
func (t *Table) Row(cells ...string) {
	var lines [][]string
	for i, c := range cells {
		for j, text := range strings.Split(cellText.Replace(c), "\n") {
			if j == len(lines) {
				lines = append(lines, make([]string, len(cells)))
			}
			lines[j][i] = text
		}
	}
	t.rows = append(t.rows, lines...)
}

// String gives the table, a line each row.
func (t *Table) String() string {
	var width []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], cellWidth(c))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			space := strings.Repeat(" ", width[i]-cellWidth(c))
			if i >= len(t.left) || t.left[i] {
				line.WriteString(c + space + "  ")
			} else {
				line.WriteString(space + c + "  ")
			}
		}
		b.WriteString(strings.TrimRightFunc(line.String(), unicode.IsSpace) + "\n")
	}
	return b.String()
}

// cellWidth is how many columns of a terminal a text takes. Lines and blocks take one in every locale.
func cellWidth(s string) int {
	n := 0
	for _, r := range s {
		if r >= 0x2500 && r < 0x25a0 {
			n++
		} else {
			n += runewidth.RuneWidth(r)
		}
	}
	return n
}
