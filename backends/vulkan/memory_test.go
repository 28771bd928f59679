//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/ops/optest"
)

// noise gives n bytes that differ from call to call.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestFewAllocations: a thousand weights lie in a handful of allocations, which are
// given back with them.
func TestFewAllocations(t *testing.T) {
	dev := open(t, vulkan.Options{})
	before := dev.Blocks()
	var list []backends.Buffer
	for i := range 1000 {
		b, err := dev.Alloc(50_000+i, backends.Weights)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	if n := dev.Blocks() - before; n > 4 {
		t.Errorf("1000 weights, 50 MB, took %d allocations", n)
	}
	for _, b := range list {
		if err := b.Free(); err != nil {
			t.Fatal(err)
		}
	}
	if n := dev.Blocks() - before; n > 1 {
		t.Errorf("%d allocations were kept", n)
	}
}

// TestZeroed: memory is zero at first sight, whatever it held before, also behind
// what was written in part.
func TestZeroed(t *testing.T) {
	for name, stage := range map[string]bool{"mapped": false, "staged": true} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, vulkan.Options{})
			dev.Stage(stage)
			s, err := dev.Stream()
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			for _, use := range []backends.Use{backends.Weights, backends.States, backends.Arena, backends.Step} {
				for round := range 2 {
					b, err := dev.Alloc(10_001, use)
					if err != nil {
						t.Fatal(err)
					}
					want, got := make([]byte, 10_001), make([]byte, 10_001)
					if round == 1 { // the same memory again, written in part
						copy(want[5000:], noise(rng, 100))
						if err := s.Write(b, 5000, want[5000:5100]); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.Read(b, 0, got); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%v, round %d: memory is not zero", use, round)
					}
					if err := errors.Join(s.Write(b, 0, noise(rng, 10_001)), b.Free()); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestStaged: large transfers through the ring of slots, at odd offsets, arrive.
func TestStaged(t *testing.T) {
	dev := open(t, vulkan.Options{})
	dev.Stage(true)
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	const size = 150_000_001 // two turns of the ring
	b, err := dev.Alloc(size, backends.Weights)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	want, got := make([]byte, size), make([]byte, size)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := 0; i < size; i += 997 {
		want[i] = byte(rng.Uint32())
	}
	if err := errors.Join(s.Write(b, 0, want), s.Write(b, 77, want[1000:50_000_000]), s.Read(b, 0, got)); err != nil {
		t.Fatal(err)
	}
	copy(want[77:], append([]byte(nil), want[1000:50_000_000]...))
	if !bytes.Equal(got, want) {
		t.Error("bytes changed on their way")
	}
}

// TestSplitAllocations: a weight larger than the largest allocation lies in several,
// and kernels find their rows and experts there.
func TestSplitAllocations(t *testing.T) {
	sizes := map[string][2]int{"linear/q8_0/1x512x19": {8192, 2048}, "linear/f32/5x37x19": {2048, 1024},
		"embed/q8_0/5x512":          {8192 / 2, 2048},
		"linear_id/q8_0/1x1x512x19": {24 << 10, 12 << 10}}
	for name, stage := range map[string]bool{"mapped": false, "staged": true} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, vulkan.Options{})
			dev.Stage(stage)
			s, err := dev.Stream()
			if err != nil {
				t.Fatal(err)
			}
			dev.SetMaxAllocation(1<<16, 1<<13)
			b, err := dev.Alloc(300_001, backends.Weights)
			if err != nil {
				t.Fatal(err)
			}
			want, got := noise(rand.New(rand.NewPCG(1, 1)), 300_001), make([]byte, 300_001)
			if err := errors.Join(s.Write(b, 0, want), s.Write(b, 60_000, want[:9000]), s.Read(b, 0, got)); err != nil {
				t.Fatal(err)
			}
			copy(want[60_000:], append([]byte(nil), want[:9000]...))
			if !bytes.Equal(got, want) {
				t.Error("bytes changed on their way")
			}
			if err := b.Free(); err != nil {
				t.Fatal(err)
			}
			tried := 0
			for _, c := range optest.Cases() {
				if n, ok := sizes[c.Name]; ok {
					tried++
					dev.SetMaxAllocation(n[0], n[1])
					before := dev.Parts()
					if err := optest.Check(dev, c); err != nil {
						t.Errorf("%s: %v", c.Name, err)
					}
					if dev.Parts() == before {
						t.Errorf("%s: nothing was cut at %d bytes", c.Name, n[0])
					}
				}
			}
			if tried != len(sizes) {
				t.Errorf("%d of %d cases are in the table", tried, len(sizes))
			}
		})
	}
}

// BenchmarkUpload loads 1 GB of a file in the page cache as the loader does, from its
// mapping, beside what the two sides reach alone: the host copying to staging memory,
// the device copying from there. Loading overlaps both, so it should come near the
// slower one.
func BenchmarkUpload(b *testing.B) {
	dev := open(b, vulkan.Options{})
	size := 1 << 30
	if dev.Description().Kind == vulkan.Software {
		dev.Stage(true)
		size >>= 2
	}
	f, err := os.CreateTemp(b.TempDir(), "weights")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		b.Fatal(err)
	}
	buf, err := dev.Alloc(size, backends.Weights)
	if err != nil {
		b.Fatal(err)
	}
	defer buf.Free()
	best := map[string]float64{} // GB/s
	run := func(name string, work func(data []byte) error) {
		// A new mapping, whose pages come by faults, as those of a model's file do.
		data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			b.Fatal(err)
		}
		defer syscall.Munmap(data)
		start := time.Now()
		if err := errors.Join(work(data), dev.Drain()); err != nil {
			b.Fatal(err)
		}
		best[name] = max(best[name], float64(size)/1e9/time.Since(start).Seconds())
	}
	upload := func(data []byte) error {
		for at := 0; at < size; at += 1 << 25 { // weights of 32 MB
			if err := s.Write(buf, at, data[at:at+1<<25]); err != nil {
				return err
			}
		}
		return nil
	}
	run("upload", upload)
	for b.Loop() {
		run("host", dev.FillSlots)
		run("device", func([]byte) error { return dev.SendSlots(buf, size) })
		run("upload", upload)
	}
	for name, gbs := range best {
		b.ReportMetric(gbs, name+"-GB/s")
	}
	b.ReportMetric(best["upload"]/min(best["host"], best["device"]), "of-slower")
}
