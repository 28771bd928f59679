//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
)

// TestTold: programs that tell their end by a word, whose Step memory the host writes on both sides, give the logits
// that others give; waits do end by the word; and where it never comes, by the semaphore.
func TestTold(t *testing.T) {
	const n = 15
	logits := func(dev *vulkan.Device) (all [][]float32) {
		s := session(t, dev, nil)
		for i := range n {
			out, err := s.Decode(int32(i * 37 % 4999))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, slices.Clone(out))
		}
		return all
	}
	want := logits(open(t, vulkan.Options{}))
	for _, mute := range []bool{false, true} {
		dev, err := broken(t, func(c *vk.Commands) {
			if mute {
				tap(&c.CmdFillBufferAddr, func(int) vk.Result { return vk.VK_ERROR_UNKNOWN }) // it gives nothing
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		dev.Tells()
		dev.Near()
		got, told := logits(dev), dev.Told()
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("without its word %v: logits of token %d differ", mute, i)
			}
		}
		if mute == (told > 0) {
			t.Errorf("without its word %v: %d of %d waits ended by it", mute, told, n)
		}
	}
}
