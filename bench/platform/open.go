package platform

import (
	"fmt"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/internal/errlist"
)

// open makes a device a target of benchmarks.
func open(s *session) (target, error) {
	switch d := s.opt.Device.(type) {
	case *cpu.Device:
		return openCPU(s, d)
	case *hip.Device:
		dev, err := newHIP(d)
		return openGPU(s, dev, err)
	case *vulkan.Device:
		dev, err := newVulkan(d)
		return openGPU(s, dev, err)
	}
	return nil, fmt.Errorf("the %s backend has no benchmarks of the platform; cpu, vulkan and hip have", s.backend)
}

func openGPU(s *session, dev gpuDevice, err error) (target, error) {
	if err != nil {
		return nil, err
	}
	g := &GPU{session: s, dev: dev}
	if g.limits, err = dev.limits(); err == nil {
		g.peaks = model(g.limits)
		err = g.warmUp()
	}
	if err != nil {
		return nil, errlist.Join(err, g.close())
	}
	return g, nil
}
