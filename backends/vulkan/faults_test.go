//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Faults are put between the backend and the driver: a command's address is replaced
// by one that counts, fails, or changes what the driver says.

// broken opens a device with faults. It is closed by the test.
func broken(t *testing.T, replace func(*vk.Commands)) (*vulkan.Device, error) {
	t.Helper()
	open(t, vulkan.Options{}) // skips where there is no device
	return vulkan.New(vulkan.Faulty(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE")}, replace))
}

// tap calls a command's driver, unless result says otherwise: 0 calls it, another
// number is returned instead. before is told each call.
func tap(addr *uintptr, before func(call int) vk.Result) {
	if *addr == 0 {
		return // another level's
	}
	original, calls := *addr, 0
	*addr = purego.NewCallback(func(a, b, c, d, e, f uintptr) uintptr {
		calls++
		if r := before(calls); r != vk.VK_SUCCESS {
			return uintptr(uint32(r))
		}
		r, _, _ := purego.SyscallN(original, a, b, c, d, e, f)
		return r
	})
}

// balance counts what is created and destroyed.
type balance map[string]int

func (n balance) watch(c *vk.Commands) {
	count := func(addr *uintptr, name string, by int) {
		if *addr == 0 {
			return
		}
		original := *addr
		*addr = purego.NewCallback(func(a, b, c, d, e, f uintptr) uintptr {
			r, _, _ := purego.SyscallN(original, a, b, c, d, e, f)
			if by < 0 || int32(r) == 0 {
				n[name] += by
			}
			return r
		})
	}
	for _, p := range []struct {
		name         string
		made, unmade *uintptr
	}{
		{"memory", &c.AllocateMemoryAddr, &c.FreeMemoryAddr}, {"buffers", &c.CreateBufferAddr, &c.DestroyBufferAddr},
		{"pipelines", &c.CreateComputePipelinesAddr, &c.DestroyPipelineAddr},
		{"modules", &c.CreateShaderModuleAddr, &c.DestroyShaderModuleAddr},
		{"descriptor pools", &c.CreateDescriptorPoolAddr, &c.DestroyDescriptorPoolAddr},
		{"query pools", &c.CreateQueryPoolAddr, &c.DestroyQueryPoolAddr},
		{"semaphores", &c.CreateSemaphoreAddr, &c.DestroySemaphoreAddr},
		{"command buffers", &c.AllocateCommandBuffersAddr, &c.FreeCommandBuffersAddr},
	} {
		count(p.made, p.name, 1)
		count(p.unmade, p.name, -1)
	}
}

func (n balance) check(t *testing.T) {
	t.Helper()
	if len(n) == 0 {
		t.Error("nothing was counted")
	}
	for name, left := range n {
		if left != 0 {
			t.Errorf("%d %s are left", left, name)
		}
	}
}

// TestNoLoader: without the loader the error says what to install, in one line.
func TestNoLoader(t *testing.T) {
	_, err := vulkan.New(vulkan.WithLoader(vulkan.Options{}, "libthere-is-no-such-loader.so.1", "libnor-this.so"))
	var none *backends.NoDevice
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "install libvulkan1") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// TestNoDriver: a loader without drivers, and drivers without devices.
func TestNoDriver(t *testing.T) {
	var none *backends.NoDevice
	_, err := broken(t, func(c *vk.Commands) {
		if c.EnumeratePhysicalDevicesAddr != 0 {
			c.EnumeratePhysicalDevicesAddr = purego.NewCallback(func(_ uintptr, n *uint32, _ uintptr) uintptr {
				*n = 0
				return 0
			})
		}
	})
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "found none") {
		t.Errorf("no device: %v", err)
	}
	t.Setenv("VK_DRIVER_FILES", "/nonexistent.json")
	t.Setenv("VK_ICD_FILENAMES", "/nonexistent.json")
	if _, err = vulkan.New(vulkan.Options{Software: true}); !errors.As(err, &none) ||
		!strings.Contains(err.Error(), "driver") ||
		!strings.Contains(err.Error(), "VK_DRIVER_FILES=/nonexistent.json") {
		t.Errorf("no driver: %v", err)
	}
}

// TestLacks: a device without what kernels need is refused with the reason.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(p *vk.PhysicalDeviceProperties, p11 *vk.PhysicalDeviceVulkan11Properties)
	}{
		{"version", "1.2 is needed", func(p *vk.PhysicalDeviceProperties, _ *vk.PhysicalDeviceVulkan11Properties) {
			p.ApiVersion = 1<<22 | 1<<12
		}},
		{"subgroups", "no arithmetic over subgroups", func(_ *vk.PhysicalDeviceProperties,
			p *vk.PhysicalDeviceVulkan11Properties) {
			if p != nil {
				p.SubgroupSupportedOperations = 1
			}
		}},
		{"workgroups", "workgroups of 128", func(p *vk.PhysicalDeviceProperties, _ *vk.PhysicalDeviceVulkan11Properties) {
			p.Limits.MaxComputeWorkGroupInvocations = 128
		}},
		{"constants", "64 bytes of push constants", func(p *vk.PhysicalDeviceProperties,
			_ *vk.PhysicalDeviceVulkan11Properties) {
			p.Limits.MaxPushConstantsSize = 64
		}},
	} {
		_, err := broken(t, func(f *vk.Commands) {
			original := f.GetPhysicalDeviceProperties2Addr
			if original == 0 {
				return
			}
			f.GetPhysicalDeviceProperties2Addr = purego.NewCallback(func(d uintptr, p *vk.PhysicalDeviceProperties2) uintptr {
				purego.SyscallN(original, d, uintptr(unsafe.Pointer(p)))
				c.change(&p.Properties, find11(p.PNext))
				return 0
			})
		})
		var none *backends.NoDevice
		if !errors.As(err, &none) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := broken(t, func(f *vk.Commands) {
		if original := f.GetPhysicalDeviceFeatures2Addr; original != 0 {
			f.GetPhysicalDeviceFeatures2Addr = purego.NewCallback(func(d uintptr, p *vk.PhysicalDeviceFeatures2) uintptr {
				purego.SyscallN(original, d, uintptr(unsafe.Pointer(p)))
				for at := p.PNext; at != nil; at = (*vk.PhysicalDeviceFeatures2)(at).PNext {
					if f := (*vk.PhysicalDeviceVulkan12Features)(
						at); f.SType == vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES {
						f.TimelineSemaphore = 0
					}
				}
				return 0
			})
		}
	})
	var none *backends.NoDevice
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "timeline semaphores") {
		t.Errorf("without timeline semaphores: %v", err)
	}
	if _, err := broken(t, func(f *vk.Commands) {
		tap(&f.CreateDeviceAddr, func(int) vk.Result { return vk.VK_ERROR_FEATURE_NOT_PRESENT })
	}); err == nil || !strings.Contains(err.Error(), "vkCreateDevice: VK_ERROR_FEATURE_NOT_PRESENT") {
		t.Errorf("a device that cannot be made: %v", err)
	}
}

// find11 looks for the properties of Vulkan 1.1 in a chain.
func find11(at unsafe.Pointer) *vk.PhysicalDeviceVulkan11Properties {
	for ; at != nil; at = (*vk.PhysicalDeviceProperties2)(at).PNext {
		if p := (*vk.PhysicalDeviceVulkan11Properties)(
			at); p.SType == vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES {
			return p
		}
	}
	return nil
}

// TestOutOfMemory: wherever memory runs out, the error says so with its size, and all
// that was made before is given back.
func TestOutOfMemory(t *testing.T) {
	for _, at := range []int{1, 2, 3} {
		left := balance{}
		dev, err := broken(t, func(c *vk.Commands) {
			left.watch(c)
			tap(&c.AllocateMemoryAddr, func(call int) vk.Result {
				if call >= at {
					return vk.VK_ERROR_OUT_OF_DEVICE_MEMORY
				}
				return vk.VK_SUCCESS
			})
		})
		if err == nil {
			var held []backends.Buffer
			for range 100 {
				var b backends.Buffer
				if b, err = dev.Alloc(50<<20, backends.Weights); err != nil {
					break
				}
				held = append(held, b)
			}
			for _, b := range held {
				if err := b.Free(); err != nil {
					t.Error(err)
				}
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
		var memory *backends.OutOfMemory
		if !errors.As(err, &memory) || !errors.Is(err, vk.VK_ERROR_OUT_OF_DEVICE_MEMORY) || memory.Need == 0 {
			t.Errorf("from allocation %d on: %v", at, err)
		}
		left.check(t)
	}
}

// TestLost: a device that is lost, when a step is submitted or while it runs, ends the
// run with an error that says so; every call afterwards says the same, at once, and
// closing gives everything back.
func TestLost(t *testing.T) {
	for _, where := range []string{"vkQueueSubmit", "vkWaitSemaphores"} {
		t.Run(where, func(t *testing.T) {
			left, lost := balance{}, false
			fail := func(int) vk.Result {
				if lost {
					return vk.VK_ERROR_DEVICE_LOST
				}
				return vk.VK_SUCCESS
			}
			dev, err := broken(t, func(c *vk.Commands) {
				left.watch(c)
				if where == "vkQueueSubmit" {
					tap(&c.QueueSubmitAddr, fail)
					return
				}
				for _, wait := range []*uintptr{&c.WaitSemaphoresAddr, &c.GetSemaphoreCounterValueAddr} {
					idle := c.DeviceWaitIdleAddr
					tapped := *wait
					tap(wait, fail)
					if failing := *wait; tapped != 0 {
						*wait = purego.NewCallback(func(device, b, c uintptr) uintptr {
							if lost {
								purego.SyscallN(idle, device) // what is lost runs no longer
							}
							r, _, _ := purego.SyscallN(failing, device, b, c)
							return r
						})
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Run("run", func(t *testing.T) {
				rows, more := 5, 40
				if taste(dev, testfiles.Exhaustive()) { // by the step of single tokens
					rows, more = 1, 1
				}
				s := session(t, dev, nil)
				if _, err := s.Prefill(context.Background(), prompt(rows)); err != nil {
					t.Fatal(err)
				}
				g, err := s.Generate(context.Background(), prompt(more), engine.Generation{Max: 20, Emit: func(int32) bool {
					lost = true
					return true
				}})
				if !errors.Is(err, vk.VK_ERROR_DEVICE_LOST) || !strings.Contains(err.Error(), "the device was lost") {
					t.Errorf("the run ended with %v", err)
				}
				if len(g.Tokens) == 0 {
					t.Error("the tokens before were dropped")
				}
				if _, err := s.Decode(1); !errors.Is(err, vk.VK_ERROR_DEVICE_LOST) {
					t.Errorf("the next token: %v", err)
				}
				if _, err := dev.Alloc(16, backends.Arena); !errors.Is(err, vk.VK_ERROR_DEVICE_LOST) {
					t.Errorf("the next buffer: %v", err)
				}
				if _, err := dev.Stream(); !errors.Is(err, vk.VK_ERROR_DEVICE_LOST) {
					t.Errorf("the next stream: %v", err)
				}
			})
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
			left.check(t)
		})
	}
}

// TestRefusedKernel: a kernel that the driver does not compile is named.
func TestRefusedKernel(t *testing.T) {
	dev, err := broken(t, func(c *vk.Commands) {
		tap(&c.CreateComputePipelinesAddr, func(int) vk.Result { return vk.VK_ERROR_UNKNOWN })
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err = model(t, dev, nil); err == nil || !strings.Contains(err.Error(),
		"vkCreateComputePipelines (gather_q8_0") || !strings.Contains(err.Error(), "VK_ERROR_UNKNOWN") {
		t.Errorf("%v", err)
	}
}

// TestRefusedByOne: of two programs that are under way the one that was given an index out of range says so,
// and not the other, whichever is waited for first.
func TestRefusedByOne(t *testing.T) {
	dev := open(t, vulkan.Options{})
	stream, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	var runs [2]backends.Executable
	var tokens [2]*backends.Operand
	for i := range runs {
		s := session(t, dev, nil)
		if _, err := s.Decode(7); err != nil { // writes what the step reads
			t.Fatal(err)
		}
		st, err := s.Step(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if runs[i], err = dev.Capture(st.Program); err != nil {
			t.Fatal(err)
		}
		defer runs[i].Close()
		for n := range st.Program.Launches {
			if l := &st.Program.Launches[n]; l.Node.Op == ops.Embed {
				tokens[i] = &l.In[0]
			}
		}
	}
	give := func(i int, token uint32) {
		if err := stream.Write(tokens[i].Buffer, tokens[i].Offset, binary.LittleEndian.AppendUint32(nil, token)); err != nil {
			t.Fatal(err)
		}
	}
	for bad := range runs {
		give(bad, 1<<30)
		for first := range runs {
			for _, x := range runs {
				if err := x.Submit(); err != nil {
					t.Fatal(err)
				}
			}
			for _, i := range []int{first, 1 - first} {
				switch err := runs[i].Wait(); {
				case i != bad && err != nil:
					t.Errorf("the other one: %v", err)
				case i == bad && (err == nil || !strings.Contains(err.Error(), "index 0 is 1073741824")):
					t.Errorf("an index out of range: %v", err)
				}
			}
		}
		give(bad, 7)
	}
}

// TestNoRoomApart: where there is no memory for results of their own a step is captured with barriers, and says so.
func TestNoRoomApart(t *testing.T) {
	full := true
	open(t, vulkan.Options{}) // skips where there is no device
	dev, err := vulkan.New(vulkan.Faulty(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE"),
		FP16: backends.On}, func(c *vk.Commands) {
		original := c.CreateBufferAddr
		if original == 0 {
			return
		}
		c.CreateBufferAddr = purego.NewCallback(func(device uintptr, info *vk.BufferCreateInfo, a, b uintptr) uintptr {
			if size := info.Size; full && size >= 16<<10 && size < 1<<20 && size&(size-1) == 0 {
				// as memory for activations has it
				code := int32(vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
				return uintptr(uint32(code))
			}
			r, _, _ := purego.SyscallN(original, device, uintptr(unsafe.Pointer(info)), a, b)
			return r
		})
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dev.Ordered()
	if err := dev.SetPath("overlap", true); err != nil {
		t.Skip(err)
	}
	t.Run("step", func(t *testing.T) {
		var notes []string
		s := session(t, dev, func(o *engine.Options) {
			o.DType, o.Notify = tensor.F16, func(text string) { notes = append(notes, text) }
			o.Set = map[string]string{"L": "2", "D": "192", "H": "3", "F": "3072", "V": "500"}
		})
		if _, err := s.Decode(7); err != nil {
			t.Fatal(err)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "wait at barriers") {
			t.Errorf("notes: %q", notes)
		}
		st, err := s.Step(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, full = range []bool{true, false} {
			x, err := dev.Capture(st.Program)
			if err != nil {
				t.Fatal(err)
			}
			if handed, said := vulkan.Handed(x) > 0, strings.Contains(vulkan.Said(x),
				"no memory for results of their own: out of device memory"); handed == full || said != full {
				t.Errorf("full %v: handed over %v, said %q", full, handed, vulkan.Said(x))
			}
			if err := errors.Join(x.Submit(), x.Wait(), x.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFillFails: memory that could not be filled when it was new is not taken for filled afterwards.
func TestFillFails(t *testing.T) {
	logits := func(s *engine.Session) ([]float32, error) {
		out, err := s.Decode(7)
		return slices.Clone(out), err
	}
	var want []float32
	for fail := 0; ; fail++ { // of the recordings that fill something; 0: none
		armed, fills, filling := true, 0, false
		dev, err := broken(t, func(c *vk.Commands) {
			tap(&c.BeginCommandBufferAddr, func(int) vk.Result { filling = false; return vk.VK_SUCCESS })
			tap(&c.CmdFillBufferAddr, func(int) vk.Result { filling = true; return vk.VK_SUCCESS })
			tap(&c.EndCommandBufferAddr, func(int) vk.Result {
				if filling {
					if fills++; armed && fills == fail {
						return vk.VK_ERROR_OUT_OF_HOST_MEMORY
					}
				}
				return vk.VK_SUCCESS
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		if err := ordered(t, dev, true); err != nil {
			t.Skip(err)
		}
		for _, p := range dev.Paths() {
			if err := dev.SetPath(p.Name, true); err != nil {
				t.Fatal(err)
			}
		}
		change := func(o *engine.Options) {
			o.DType, o.KV = tensor.F16, tensor.F16
			o.Set = map[string]string{"L": "1", "D": "256", "H": "4", "F": "768", "V": "500"}
		}
		s, err := model(t, dev, change)
		if err == nil {
			_, err = logits(s)
		}
		failed := err != nil
		armed = false
		got, err := logits(session(t, dev, change))
		switch {
		case err != nil:
			t.Fatalf("behind failure %d: %v", fail, err)
		case fail == 0:
			want = got
		case !slices.Equal(got, want):
			t.Errorf("behind failure %d: other logits", fail)
		}
		if fail > 0 && !failed {
			if fail < 3 {
				t.Errorf("%d recordings fill something", fail-1)
			}
			return
		}
	}
}

// TestFillRefused: a step whose places cannot be filled again for the next one ends all, since that would take what
// this one left for what it waits for.
func TestFillRefused(t *testing.T) {
	submits, refused := 0, 0
	dev, err := broken(t, func(c *vk.Commands) {
		tap(&c.QueueSubmitAddr, func(int) vk.Result {
			if submits++; submits == refused {
				return vk.VK_ERROR_OUT_OF_HOST_MEMORY
			}
			return vk.VK_SUCCESS
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	dev.Ordered()
	if err := dev.SetPath("overlap", true); err != nil {
		t.Skip(err)
	}
	s := session(t, dev, func(o *engine.Options) { o.DType = tensor.F16 })
	if _, err := s.Decode(7); err != nil {
		t.Fatal(err)
	}
	submits, refused = 0, 2 // the step, and what is behind it
	for range 2 {
		if _, err := s.Decode(8); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a step whose places were not filled: %v", err)
		}
	}
}
