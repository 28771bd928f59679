package jinja

// What strftime_now gives: Python's directives, and glibc's flags, widths and modifiers of them, in the C locale.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// strftime formats the time of the rendering.
func (in *interp) strftime(format string) string {
	out := &buffer{in: in}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.write(format[i : i+1])
			continue
		}
		if strings.HasPrefix(format[i:], "%:z") { // the time is a naive one
			i += 2
			continue
		}
		flags := i + 1
		width := flags + len(format[flags:]) - len(strings.TrimLeft(format[flags:], "_-0^#"))
		at := width + len(format[width:]) - len(strings.TrimLeft(format[width:], "0123456789"))
		modifier := at
		if at < len(format) && (format[at] == 'E' || format[at] == 'O') {
			at++
		}
		if at == len(format) {
			out.write(format[i:])
			break
		}
		text, known := directive(in.now, format[at])
		if !known || format[at] == 'f' && at > i+1 { // microseconds are Python's own, and have no flags
			out.write(format[i : at+1])
		} else {
			n, _ := strconv.ParseInt(format[width:modifier], 10, 64) // what is too large for it is for the bound too
			out.write(timeField(text, format[at], format[flags:width], in.bounded(n)))
		}
		i = at
	}
	return out.b.String()
}

// timeField writes a directive's text with its flags, at least so many bytes wide.
func timeField(text string, directive byte, flags string, width int) string {
	numeric, pad, digits := strings.IndexByte("CdGgHIjmMsSuUVwWyY", directive) >= 0, "0", text
	if !numeric {
		numeric, pad = strings.IndexByte("ekl", directive) >= 0, " "
	}
	if numeric {
		last := len(text) - 1
		digits = strings.TrimLeft(text[:last], "0 ") + text[last:]
	}
	for _, flag := range flags {
		switch {
		case flag == '^':
			text = strings.ToUpper(text)
		case flag == '#' && strings.IndexByte("pZ", directive) >= 0:
			text = strings.ToLower(text)
		case flag == '#':
			text = strings.ToUpper(text)
		case flag == '-' && numeric:
			text, pad = digits, ""
		case flag == '_' || flag == '0':
			pad = map[rune]string{'_': " ", '0': "0"}[flag]
			if numeric {
				text = strings.Repeat(pad, len(text)-len(digits)) + digits
			}
		}
	}
	if n := width - len(text); n > 0 && pad != "" {
		text = strings.Repeat(pad, n) + text
	}
	return text
}

var timeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'Y': "2006", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'D': "01/02/06", 'x': "01/02/06",
	'X': "15:04:05", 'T': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006",
	'F': "2006-01-02", 'j': "002",
}

// directive gives what a letter stands for, and whether it stands for something.
func directive(t time.Time, c byte) (string, bool) {
	if layout, ok := timeLayouts[c]; ok {
		return t.Format(layout), true
	}
	year, week := t.ISOWeek()
	switch c {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7), true
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7), true
	case 'V':
		return fmt.Sprintf("%02d", week), true
	case 'G':
		return fmt.Sprint(year), true
	case 'g':
		return fmt.Sprintf("%02d", year%100), true
	case 'P':
		return strings.ToLower(t.Format("PM")), true
	case 'C':
		return fmt.Sprintf("%02d", int(math.Floor(float64(t.Year())/100))), true
	case 'z', 'Z': // the time is a naive one
		return "", true
	}
	return "", false
}
