package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// picking is a device that chooses tokens.
type picking struct{ backends.Device }

func (d picking) Info() backends.Info {
	i := d.Device.Info()
	i.Picks = 40
	return i
}

// TestHostAndDeviceChoose: of a step whose rows are chosen by the device and by the host, the logits of the latter
// alone are read, and each request has the tokens and log-probabilities that it has on a device that chooses nothing.
func TestHostAndDeviceChoose(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	const vocabulary = 33000
	var kinds []Request
	biases := map[int32]float32{} // too many for the device
	for i := range int32(5000) {
		biases[i] = float32(i%7) / 8
	}
	for i, o := range []Sampling{{}, {Temperature: 1}, {Temperature: 0.7, TopP: 0.9}, {Temperature: 1, TopK: 5}, {},
		{Temperature: 1, PresencePenalty: 1, LogitBias: map[int32]float32{7: 11, 9: 10}}, {LogitBias: biases}} {
		o.Seed = uint64(i)
		kinds = append(kinds, Request{Prompt: []int32{1, int32(5 + i)}, Max: 6, Sampling: o})
	}
	kinds[1].Logprobs, kinds[4].Logprobs, kinds[4].Sampling.RepeatPenalty = 2, 50, 1.2 // 50: more than the device gives
	for _, c := range []struct {
		name    string
		masked  bool
		without []int // kinds
	}{{"all", false, nil}, {"no filters", false, []int{2}}, {"no draws", false, []int{2, 3}}, {"masked", true, nil}} {
		t.Run(c.name, func(t *testing.T) {
			dev := newCPU(t, 2)
			open := func(d backends.Device) *Scheduler {
				return newScheduler(t, newEngine(t, Options{Model: file, Device: d, Context: 64, DType: tensor.F16, Seed: 3,
					Set: map[string]string{"L": "1", "D": "32", "H": "2", "F": "32", "V": "33000"}}),
					SchedulerOptions{Tokens: 1024, Page: 8})
			}
			host, s := open(dev), open(picking{dev})
			var handles []*Handle
			var asked []Request
			for i, r := range kinds {
				if slices.Contains(c.without, i) {
					continue
				}
				asked = append(asked, r)
				if c.masked {
					r.Mask = &only{tokens: []int32{5, 40, 33, 2, 7, 8, 9}}
				}
				h, err := s.Add(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
			for i, r := range asked {
				if c.masked {
					r.Mask = &only{tokens: []int32{5, 40, 33, 2, 7, 8, 9}}
				}
				h, err := host.Add(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				want, got := tokensOf(t, h), tokensOf(t, handles[i])
				sameTokens(t, fmt.Sprintf("%+v", r.Sampling), got, want)
			}
			if n := cap(s.batch.whole); n < vocabulary || n >= 3*vocabulary {
				t.Errorf("there is room for %d logits that the host chooses from, for two rows of %d", n, vocabulary)
			}
			if n := cap(s.batch.logits); n > 4*vocabulary { // a step may have the rows of the host alone, in its bucket
				t.Errorf("there is room for %d logits of all rows", n)
			}
			freed(t, s)
		})
	}
}

func tokensOf(t *testing.T, h *Handle) (all []Token) {
	t.Helper()
	for tok, err := range h.Tokens() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tok)
	}
	return all
}
