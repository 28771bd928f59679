package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
)

const benchVocabulary = 151936

// flatLogits are a model's of random weights: nothing is likely.
func flatLogits(n int) []float32 { return spreadLogits(n, 0.1) }

func spreadLogits(n int, spread float64) []float32 {
	r := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * spread)
	}
	return x
}

// peakedLogits are like a trained model's: a few dozen tokens have nearly all probability.
func peakedLogits(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * 2)
	}
	for i := range 300 {
		x[r.IntN(n)] = float32(17 - 1.3*math.Log(float64(i+1)) + r.NormFloat64()/2)
	}
	return x
}

var hostChoices = []struct {
	name string
	opt  Sampling
	logs int
}{
	{"greedy", Sampling{}, 0},
	{"temperature", Sampling{Temperature: 1}, 0},
	{"top_p=.9", Sampling{Temperature: 1, TopP: 0.9}, 0},
	{"min_p=.05", Sampling{Temperature: 1, MinP: 0.05}, 0},
	{"typical=.9", Sampling{Temperature: 1, TypicalP: 0.9}, 0},
	{"penalties", Sampling{Temperature: 1, RepeatPenalty: 1.1, FrequencyPenalty: 0.2, PresencePenalty: 0.1,
		RepeatLast: 1000}, 0},
	{"bias50", Sampling{Temperature: 1, LogitBias: biases(50)}, 0},
	{"logprobs20", Sampling{Temperature: 1}, 20},
	{"t=.7,top_p=.95", Sampling{Temperature: 0.7, TopP: 0.95}, 0},
	{"t=.7,top_k=20,top_p=.95,presence", Sampling{Temperature: 0.7, TopK: 20, TopP: 0.95, PresencePenalty: 0.5,
		RepeatLast: 1000}, 0},
	{"t=.7,top_k=40,top_p=.95,logprobs5", Sampling{Temperature: 0.7, TopK: 40, TopP: 0.95}, 5},
	{"all", Sampling{Temperature: 0.8, TopK: 50000, TypicalP: 0.95, TopP: 0.9, MinP: 0.02, RepeatPenalty: 1.1,
		RepeatLast: 1000, LogitBias: biases(50)}, 20},
}

func biases(n int) map[int32]float32 {
	m := map[int32]float32{}
	for i := range n {
		m[int32(i*3001%benchVocabulary)] = float32(i%7) - 3
	}
	return m
}

// history are the tokens so far.
func history(n int) []int32 {
	r := rand.New(rand.NewPCG(1, 3))
	h := make([]int32, n)
	for i := range h {
		h[i] = int32(benchVocabulary * r.Float64() * r.Float64() * r.Float64())
	}
	return h
}

// BenchmarkHostChoice is the choice of one row's token from all logits, and beside it that of 64 rows.
func BenchmarkHostChoice(b *testing.B) {
	past := history(1000)
	for kind, logits := range map[string][]float32{"flat": flatLogits(benchVocabulary),
		"flatter": spreadLogits(benchVocabulary, 1e-3), "peaked": peakedLogits(benchVocabulary)} {
		for _, c := range hostChoices {
			b.Run(c.name+"/"+kind, func(b *testing.B) {
				s, work := NewSampler(c.opt), make([]float32, len(logits))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					copy(work, logits)
					past[i%len(past)] = int32(i)
					if err := hostChoice(s, work, past[:900+i%100], c.logs); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkHostChoices is that of 64 and 256 rows side by side.
func BenchmarkHostChoices(b *testing.B) {
	past := history(1000)
	logits := flatLogits(benchVocabulary)
	for _, rows := range []int{64, 256} {
		b.Run(map[int]string{64: "64", 256: "256"}[rows], func(b *testing.B) {
			samplers, work := make([]*Sampler, rows), make([]float32, rows*len(logits))
			for i := range samplers {
				samplers[i] = NewSampler(Sampling{Temperature: 0.7, TopP: 0.95, Seed: uint64(i)})
				copy(work[i*len(logits):], logits)
			}
			var beside hands
			defer beside.leave()
			one := func(i int) {
				if err := hostChoice(samplers[i], work[i*len(logits):(i+1)*len(logits)], past, 0); err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				beside.each(rows, one)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*rows), "µs/row")
			b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "processors")
		})
	}
}

// hostChoice is the choice of a row as hostToken makes it.
func hostChoice(s *Sampler, logits []float32, past []int32, logs int) (err error) {
	best, ok := greatest(logits)
	switch {
	case !ok:
		err = errors.New("a logit is not finite")
	case logs > 0:
		_, err = s.choose(logits, best, past, nil, logs)
	default:
		_, err = s.sample(logits, best, past, nil)
	}
	return err
}
