package optest

import (
	"fmt"
	"strings"
)

// matrixRecurrences are the recurrences whose heads have a matrix as their state: N rows, DECAYS the flags of logs of
// decays, elems the elements of a slot.
var matrixRecurrences = []struct {
	name, eq, args string
	elems          int
}{
	{"ssm/one decay", "ssm(state, x, dt, a, b, c, pos, slot)", "x float[N, 6, 5]; dt float[N, 6] --1; " +
		"a f32[6, 1] DECAYS; b float[N, 2, 40]; c float[N, 2, 40]", 6 * 5 * 40},
	{"delta/one decay", "delta(state, q, k, v, g, beta, pos, slot)", "q float[N, 2, 35]; k float[N, 2, 35] *0.15; " +
		"v float[N, 2, 38]; g float[N, 2, 1] DECAYS; beta float[N, 2]", 2 * 35 * 38},
	{"delta/channels", "delta(state, q, k, v, g, beta, pos, slot)", "q float[N, 2, 17]; k float[N, 2, 17] *0.2; " +
		"v float[N, 2, 33]; g float[N, 2, 17] DECAYS; beta float[N, 2]", 2 * 17 * 33},
	{"dplr/one decay", "dplr(state, q, k, v, g, pos, slot=slot)", "q float[N, 3, 9]; k float[N, 3, 9]; " +
		"v float[N, 3, 5]; g float[N, 3, 1] DECAYS", 3 * 9 * 5},
	{"dplr/before", "dplr(state, q, k, v, g, pos, slot=slot, before=true)", "q float[N, 2, 16]; k float[N, 2, 16]; " +
		"v float[N, 2, 16]; g float[N, 2, 16] DECAYS", 2 * 16 * 16},
	{"dplr/one decay, before", "dplr(state, q, k, v, g, pos, slot=slot, before=true)", "q float[N, 3, 9]; " +
		"k float[N, 3, 9]; v float[N, 3, 5]; g float[N, 3, 1] DECAYS", 3 * 9 * 5},
	{"dplr/rank", "dplr(state, q, k, v, g, pos, a, b, slot)", "q float[N, 2, 18]; k float[N, 2, 18]; " +
		"v float[N, 2, 20]; g float[N, 2, 18] DECAYS; a float[N, 2, 18] *0.2; b float[N, 2, 18] *0.2", 2 * 18 * 20},
	{"dplr/rank, one decay, before", "dplr(state, q, k, v, g, pos, a, b, slot, before=true)", "q float[N, 2, 18]; " +
		"k float[N, 2, 18]; v float[N, 2, 20]; g float[N, 2, 1] DECAYS; a float[N, 2, 18] *0.2; b float[N, 2, 18] *0.2",
		2 * 18 * 20},
}

// LongRecurrences are recurrences with a matrix as their state over n tokens, whose logs of decays have these flags: of
// a sequence from its beginning, from a position on, and beside rows of other sequences.
func LongRecurrences(n int, decays string) []Case {
	const most = 1e-3 // of values up to some hundreds
	var all []Case
	for _, r := range matrixRecurrences {
		add := func(name string, rows int, eq string, slots int, held, pos, slot string) {
			args := fmt.Sprintf("state f32[%d, %d]%s; %s; pos i32[%d] =%s%s", slots, r.elems+1, held, r.args, rows, pos, slot)
			args = strings.NewReplacer("[N", fmt.Sprintf("[%d", rows), "DECAYS", decays).Replace(args)
			all = append(all, Case{fmt.Sprintf("%s of %d, %s, %s", r.name, n, decays, name), "n, y: " + eq, args, sumRel, most})
		}
		alone := strings.NewReplacer(", slot=slot", "", ", slot", "").Replace(r.eq)
		add("begin", n, alone, 2, "", "0..", "")
		add("on", n, alone, 2, " @9,3", "9..", "")
		// Slot 2 goes on at 4, slot 0 at 9, slot 3 begins, two rows pad.
		rows, pos, slot := n+1+20+2, make([]string, 0, n+23), make([]string, 0, n+23)
		for i := range n {
			pos, slot = append(pos, fmt.Sprint(4+i)), append(slot, "2")
		}
		pos, slot = append(pos, "9"), append(slot, "0")
		for i := range 20 {
			pos, slot = append(pos, fmt.Sprint(i)), append(slot, "3")
		}
		pos, slot = append(pos, "0", "0"), append(slot, "-1", "-1")
		add("slots", rows, r.eq, 4, " @9,0,4,7", strings.Join(pos, ","),
			fmt.Sprintf("; slot i32[%d] =%s", rows, strings.Join(slot, ",")))
	}
	return all
}
