//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"math/rand/v2"
	"testing"
)

// TestBlock takes and gives ranges at random: they are aligned and never overlap,
// and a block whose ranges all came back is whole.
func TestBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := &block{size: 1 << 16, free: []gap{{0, 1 << 16}}}
	owner := make([]int, b.size)
	var held []place
	refused := 0
	for i := 1; i < 20000; i++ {
		if len(held) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(held))
			p := held[k]
			for j := p.from; j < p.to; j++ {
				owner[j] = 0
			}
			b.give(p)
			held[k] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		align := uint64(1) << rng.IntN(9)
		p, ok := b.take(1+uint64(rng.IntN(3000)), align)
		if !ok {
			refused++
			continue
		}
		if p.from%align != 0 || p.to > b.size {
			t.Fatalf("range %d to %d, aligned to %d", p.from, p.to, align)
		}
		for j := p.from; j < p.to; j++ {
			if owner[j] != 0 {
				t.Fatalf("byte %d was given twice", j)
			}
			owner[j] = i
		}
		held = append(held, p)
	}
	for i := 1; i < len(b.free); i++ {
		if b.free[i-1].to >= b.free[i].from {
			t.Fatalf("gaps touch: %v", b.free)
		}
	}
	for _, p := range held {
		b.give(p)
	}
	if !b.empty() || refused == 0 {
		t.Errorf("at the end %v is free; %d requests were refused", b.free, refused)
	}
}
