//go:build !nogpu

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/versions"
)

// gpuAreas are what doctor looks at in children.
var gpuAreas = []string{"vulkan", "hip"}

func (d *doctor) probe(area string) {
	switch area {
	case "vulkan":
		d.vulkan()
	case "hip":
		for _, p := range hip.Diagnose() {
			d.hip(p)
		}
	}
}

// How to get what is not there.
var remedies = map[string]string{
	"vulkan loader":   "install libvulkan1 (Debian), vulkan-loader (Fedora), vulkan-icd-loader (Arch)",
	"amd runtime":     "for AMD's cards install ROCm's runtime: libamdhip64-5 (Debian), hip-runtime-amd (AMD's packages)",
	"amd compiler":    "install hiprtc (ROCm), or build kernels ahead of time: greta kernels build",
	"amd targets":     "install ROCm's comgr: without it greta cannot know for which cards the compiler works",
	"nvidia runtime":  "for NVIDIA's cards install their driver",
	"nvidia compiler": "install NVRTC (libnvrtc12, cuda-nvrtc), or build kernels ahead of time: greta kernels build",
}

func (d *doctor) vulkan() {
	var manifests []string
	for _, pattern := range []string{"usr/share/vulkan/icd.d/*.json", "etc/vulkan/icd.d/*.json",
		"usr/local/share/vulkan/icd.d/*.json", "usr/local/etc/vulkan/icd.d/*.json"} {
		found, _ := filepath.Glob(d.path(pattern))
		manifests = append(manifests, found...)
	}
	if os.Getenv("VK_DRIVER_FILES")+os.Getenv("VK_ICD_FILENAMES") != "" {
		d.say("vulkan", noted, "", "manifests of drivers: only those that the environment names, not the %d in the usual "+
			"folders", len(manifests))
	} else if len(manifests) == 0 {
		d.say("vulkan", noted, "install a driver: mesa-vulkan-drivers, or NVIDIA's",
			"no manifest of a driver in the usual folders")
	} else {
		d.say("vulkan", fine, "", "manifests of drivers: %s", strings.Join(manifests, ", "))
	}
	layers, _ := filepath.Glob(d.path("usr/share/vulkan/explicit_layer.d/*validation*.json"))
	if len(layers) == 0 {
		d.say("vulkan", noted, "for greta smoke to count its messages: vulkan-validationlayers", "no validation layer")
	}
	list, err := vulkan.List()
	if err != nil {
		remedy := ""
		if strings.Contains(err.Error(), "loader") {
			remedy = remedies["vulkan loader"]
		}
		d.say("vulkan", noted, remedy, "%v", err)
		return
	}
	usable := vulkan.Default(list)
	for _, v := range list {
		text := fmt.Sprintf("%d %s (%s), Vulkan %s, %s, %s", v.Index, v.Name, v.Kind, v.API, v.Driver,
			report.Bytes(float64(v.Memory())))
		switch {
		case v.Reason != "":
			d.say("vulkan", warned, "update the driver", "%s: %s", text, v.Reason)
		case v.Index == usable:
			d.say("vulkan", fine, "", "%s: taken where none is named", text)
		case v.Kind == vulkan.Software:
			d.say("vulkan", noted, "", "%s: used only where it is named", text)
		default:
			d.say("vulkan", fine, "", "%s", text)
		}
		d.names(versions.Read(v.Driver, v.API))
	}
}

// hip says what was found of one of HIP's platforms.
func (d *doctor) hip(p hip.Provider) {
	runtime := len(p.Libraries) > 0 && p.Libraries[0].Error == ""
	for _, l := range p.Libraries {
		what := p.Name + " " + l.Role
		switch {
		case l.Broken:
			d.say("hip", isFault, "something that it needs is missing (ldd "+l.Path+" shows what), or it is for another machine",
				"%s: %s is there, but cannot be loaded: %s", what, l.Path, l.Error)
		case l.Error != "" && runtime && l.Role == "compiler":
			d.say("hip", warned, remedies[what], "%s: %s", what, l.Error)
		case l.Error != "":
			d.say("hip", noted, remedies[what], "%s: %s", what, l.Error)
		default:
			d.say("hip", fine, "", "%s: %s", what, l.Path)
		}
	}
	if !runtime {
		return
	}
	if len(p.Missing) > 0 {
		d.say("hip", warned, "greta is made for ROCm 5.2 to 7, and for CUDA 12 and 13",
			"%s: functions that the libraries lack: %s", p.Name, strings.Join(p.Missing, ", "))
	}
	for _, text := range p.Without {
		d.say("hip", noted, "", "%s: the libraries lack %s", p.Name, text)
	}
	switch {
	case p.Driver != "":
		d.say("hip", fine, "", "%s: %s", p.Name, p.Driver)
		d.names(versions.Read(p.Driver, ""))
	case p.Compiler != "":
		d.say("hip", fine, "", "%s compiler: version %s", p.Name, p.Compiler)
		d.names([]versions.Part{{Part: map[string]string{"amd": "hiprtc", "nvidia": "nvrtc"}[p.Name], Version: p.Compiler}})
	}
	switch {
	case p.Broken:
		d.say("hip", isFault, "the driver and its libraries may not fit each other: update both", "%s: %s", p.Name, p.Error)
	case p.Error != "":
		d.say("hip", noted, "", "%s: %s", p.Name, p.Error)
	}
	for _, f := range p.Devices {
		text := fmt.Sprintf("%s %s, %s, %s", f.ID(), f.Name, f.Arch, report.Bytes(float64(f.Memory)))
		known := len(p.Targets) == 0
		for _, t := range p.Targets {
			known = known || t == f.Arch
		}
		if !known {
			d.say("hip", isFault, "install a newer ROCm, or build kernels ahead of time: greta kernels build --with clang",
				"%s: its compiler does not know the architecture (it knows %s)", text, strings.Join(p.Targets, ", "))
			continue
		}
		d.say("hip", fine, "", "%s", text)
	}
}
