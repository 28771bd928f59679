//go:build !nogpu

package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// The list shows what can be used, marks what is taken by default, and says why
// the rest cannot.
func TestDevicesText(t *testing.T) {
	list := []vulkan.Description{
		{Index: 0, Name: "llvmpipe", Kind: vulkan.Software, Heaps: []vulkan.Heap{{Size: 2e9, Device: true}}},
		{Index: 1, Name: "Radeon 780M", Kind: vulkan.Integrated, UUID: "bb11", Location: "0000:c1:00.0",
			Driver: "radv Mesa 25", API: "1.4.305",
			Subgroup: 64, MinSubgroup: 32, MaxSubgroup: 64, Features: []string{"f16 arithmetic"},
			Matrices: []string{"16x16x16 f16·f16+f32→f32"},
			Limits:   vulkan.Limits{Shared: 65536, Invocations: 1024, MaxRange: 1 << 32, Tick: 10},
			Heaps:    []vulkan.Heap{{Size: 8e9, Budget: 5e9, Device: true}, {Size: 16e9}}},
		{Index: 2, Name: "Old Card", Kind: vulkan.Discrete, Reason: "it has Vulkan 1.1, 1.2 is needed"},
	}
	lines := vulkanDevices(list, nil)
	if lines[0].Default || !lines[1].Default || lines[2].Default {
		t.Errorf("the default is not the integrated device: %+v", lines)
	}
	short, long := devicesText(lines, false), devicesText(lines, true)
	for _, want := range []string{"1 *", "Radeon 780M", "integrated", "5.00 GB", "llvmpipe",
		"vulkan 2, Old Card: it has Vulkan 1.1"} {
		if !strings.Contains(short, want) {
			t.Errorf("the table lacks %q:\n%s", want, short)
		}
	}
	for _, want := range []string{"radv Mesa 25", "bb11", "0000:c1:00.0", "64, 32 to 64 may be asked for", "heap 0",
		"5.00 GB left to this process",
		"f16 arithmetic", "16x16x16 f16·f16+f32→f32", "65.54 kB of shared memory", "10 ns"} {
		if strings.Contains(short, want) || !strings.Contains(long, want) {
			t.Errorf("%q belongs to the details:\n%s", want, long)
		}
	}
	if l := vulkanDevices(nil, errors.New("no driver")); len(l) != 1 || devicesText(l, true) == "" ||
		!strings.Contains(devicesText(l, false), "vulkan: no driver") {
		t.Errorf("without a driver: %+v", l)
	}
}

// What platform benchmarks reached stands beside the modelled roof of their device.
func TestDevicesMeasured(t *testing.T) {
	lines := []deviceLine{{Backend: "hip", Name: "card", Location: "0000:01:00.0", ReadGBs: 1000},
		{Backend: "vulkan", Name: "card"}, {Backend: "hip", Name: "other"}}
	entry := func(id string, bytes, seconds float64, cache string) store.Entry {
		return store.Entry{Run: &record.Run{Env: record.Env{Backend: "hip", Device: "card", DeviceID: id}},
			Result: record.Result{Bytes: bytes, Samples: []float64{seconds}, Cache: cache}}
	}
	addRates(lines, []store.Entry{entry("0000:01:00.0", 9e11, 1, record.Cold), entry("0000:01:00.0", 9e12, 1, record.Warm),
		entry("0000:02:00.0", 9.5e11, 1, record.Cold)})
	if lines[0].MeasuredReadGBs != 900 || lines[1].MeasuredReadGBs != 0 || lines[2].MeasuredReadGBs != 0 {
		t.Errorf("%+v", lines)
	}
	if text := devicesText(lines[:1], false); !strings.Contains(text, "900.0 of 1000") {
		t.Errorf("measured beside modelled is missing:\n%s", text)
	}
}

// A Vulkan device has the roofs that HIP models for the same hardware.
func TestDevicesShareRoofs(t *testing.T) {
	lines := []deviceLine{{Backend: "vulkan", Location: "0000:01:00.0"}, {Backend: "vulkan"},
		{Backend: "hip", Location: "0000:01:00.0", ReadGBs: 1000, GFlops: 5000}, {Backend: "hip", ReadGBs: 1}}
	if shareRoofs(lines); lines[0].ReadGBs != 1000 || lines[0].GFlops != 5000 || lines[1].ReadGBs != 0 ||
		lines[3].ReadGBs != 1 {
		t.Errorf("%+v", lines)
	}
}

// On a machine with a Vulkan driver the list has its devices, with all keys.
func TestDevicesHere(t *testing.T) {
	found, err := vulkan.List()
	if err != nil && os.Getenv("GRETA_REQUIRE_VULKAN") == "" {
		t.Skip(err)
	}
	r := greta(t, "devices", "--json")
	var lines []map[string]any
	if err := json.Unmarshal([]byte(r.out), &lines); err != nil || r.code != 0 {
		t.Fatalf("%v; code %d: %s", err, r.code, r.err)
	}
	n := 0
	for _, l := range lines {
		if l["backend"] != "vulkan" {
			continue
		}
		n++
		for _, key := range []string{"id", "name", "kind", "uuid", "driver", "api", "memory_bytes", "subgroup", "limits",
			"heaps", "features"} {
			if l[key] == nil {
				t.Errorf("%v has no %s", l["name"], key)
			}
		}
		if l["kind"] == "software" && l["default"] == true {
			t.Errorf("the software device %v would be chosen unasked", l["name"])
		}
	}
	if n != len(found) {
		t.Errorf("%d of %d Vulkan devices are listed", n, len(found))
	}
	if !slices.ContainsFunc(lines, func(l map[string]any) bool { return l["backend"] == "cpu" && l["default"] == true }) {
		t.Error("the processor is not listed")
	}
}
