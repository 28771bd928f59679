//go:build !nogpu

package main

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
)

// gpuDevices are those of Vulkan and HIP, or why there are none.
func gpuDevices() []deviceLine {
	lines := append(vulkanDevices(vulkan.List()), hipDevices()...)
	shareRoofs(lines)
	return lines
}

func vulkanDevices(list []vulkan.Description, err error) []deviceLine {
	if err != nil {
		return []deviceLine{{Backend: "vulkan", Error: err.Error()}}
	}
	lines := make([]deviceLine, len(list))
	for i, d := range list {
		l := deviceLine{Backend: "vulkan", ID: strconv.Itoa(d.Index), Name: d.Name, Kind: string(d.Kind), UUID: d.UUID,
			Location: d.Location,
			Driver:   d.Driver, API: d.API, Float: "f32", Memory: d.Memory(), Default: d.Index == vulkan.Default(list),
			Error:    d.Reason,
			Subgroup: &subgroup{d.Subgroup, d.MinSubgroup, d.MaxSubgroup}, Limits: d.Limits, Heaps: d.Heaps, Unified: d.Unified,
			Features: d.Features, Matrices: d.Matrices}
		bytes := func(n int) string { return report.Bytes(float64(n)) }
		for j, h := range d.Heaps {
			where, left := "the host's", ""
			if h.Device {
				where = "the device's"
			}
			if h.Budget > 0 {
				left = ", " + bytes(h.Budget) + " left to this process"
			}
			l.details = append(l.details, fmt.Sprintf("%-11s %s, %s%s", "heap "+strconv.Itoa(j), bytes(h.Size), where, left))
		}
		m := d.Limits
		l.details = append(l.details,
			fmt.Sprintf("%-11s %s of shared memory, %d invocations, %d×%d×%d in a dispatch", "workgroup", bytes(m.Shared),
				m.Invocations, m.Groups[0], m.Groups[1], m.Groups[2]),
			fmt.Sprintf("%-11s %d allocations of at most %s, ranges of %s at multiples of %d, %d bytes of push constants",
				"memory",
				m.Allocations, bytes(m.MaxAllocation), bytes(m.MaxRange), m.Align, m.PushConstants))
		if m.Tick > 0 {
			l.details = append(l.details, fmt.Sprintf("%-11s %g ns", "timestamps", m.Tick))
		}
		lines[i] = l
	}
	return lines
}

func hipDevices() []deviceLine {
	found, errs := hip.List()
	var lines []deviceLine
	for i, f := range found {
		l := deviceLine{Backend: "hip", ID: f.ID(), Name: f.Name, Kind: "discrete", Level: f.Arch, Memory: int(f.Memory),
			Default: i == 0}
		if d, err := hip.New(hip.Options{Device: f.ID()}); err != nil {
			l.Error = err.Error()
		} else {
			info := d.Info()
			l.Driver, l.Float, l.Memory, l.ReadGBs, l.GFlops = info.Driver, info.Float.String(), info.Memory, info.ReadGBs,
				info.GFlops
			l.Location = environ.Location(d)
			if err := d.Close(); err != nil {
				l.Error = err.Error()
			}
		}
		lines = append(lines, l)
	}
	for _, err := range errs {
		lines = append(lines, deviceLine{Backend: "hip", Error: err.Error()})
	}
	return lines
}

// gpuMembers lists the devices of a backend that can be measured. Of Vulkan's, programs on the processor count only
// where there is nothing else.
func gpuMembers(backend string) ([]string, error) {
	if backend == "hip" {
		found, errs := hip.List()
		var ids []string
		for _, f := range found {
			ids = append(ids, f.ID())
		}
		if len(ids) == 0 {
			_, err := hip.New(hip.Options{}) // says it in one error
			return nil, cmp.Or(err, errlist.Join(errs...))
		}
		return ids, nil
	}
	list, err := vulkan.List()
	if err != nil {
		return nil, err
	}
	var cards, programs []string
	for _, d := range list {
		switch {
		case d.Reason != "":
		case d.Kind == vulkan.Software:
			programs = append(programs, strconv.Itoa(d.Index))
		default:
			cards = append(cards, strconv.Itoa(d.Index))
		}
	}
	if len(cards) == 0 {
		return programs, nil
	}
	return cards, nil
}
