package model

import (
	"testing"
	"time"
)

// The rate of many sequences is taken while all of them answer; without such a time, to the end.
func TestTogether(t *testing.T) {
	at := func(list ...int) (times []time.Time) {
		for _, s := range list {
			times = append(times, time.Unix(int64(s), 0))
		}
		return times
	}
	for _, c := range []struct {
		times    [][]time.Time
		from, to int64
	}{
		{[][]time.Time{at(1, 2, 3)}, 1, 3},
		{[][]time.Time{at(1, 2, 3, 4), at(2, 3, 4, 5), at(1, 3, 4, 6)}, 2, 4},
		{[][]time.Time{at(1, 2), at(5, 6, 9), at(3, 4)}, 5, 9},
	} {
		if from, to := together(c.times); from.Unix() != c.from || to.Unix() != c.to {
			t.Errorf("%v: from %d to %d", c, from.Unix(), to.Unix())
		}
	}
}
