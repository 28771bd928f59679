//go:build !linux || nogpu || !(amd64 || arm64)

package hip

import (
	"fmt"
	"runtime"
)

func find(who vendor) (provider, []Library) {
	_, err := load(who)
	return nil, []Library{{Role: "runtime", Error: err.Error()}}
}

func load(who vendor) (provider, error) {
	return nil, fmt.Errorf("this build for %s/%s has no %s provider", runtime.GOOS, runtime.GOARCH, who)
}
