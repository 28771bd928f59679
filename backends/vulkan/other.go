//go:build !linux || !(amd64 || arm64) || nogpu

package vulkan

import (
	"runtime"

	"github.com/greta-project/greta/backends"
)

// Device is never made in this build.
type Device struct{ backends.Device }

var errNone = noDevice("this build for " + runtime.GOOS + "/" + runtime.GOARCH + " has no Vulkan")

// List finds no devices in this build.
func List() ([]Description, error) { return nil, errNone }

// New finds no devices in this build.
func New(Options) (*Device, error) { return nil, errNone }

// hooks are what tests put between the backend and a driver, where there is one.
type hooks struct{}
