package guard

import (
	"context"
	"time"
)

// Series is how samples are taken, by greta run and by greta bench model.
type Series struct {
	Least int           // samples
	Time  time.Duration // that they take together at least
	Most  time.Duration // after which no more are begun, 0: none; the first is always taken
}

// Take calls once, which takes a sample, until there are enough.
func (s Series) Take(ctx context.Context, once func() error, values func() [][]float64, drop func(n int)) (float64, error) {
	for n, begin := 0, time.Now(); n < s.Least || time.Since(begin) < s.Time; n++ {
		if err := once(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
