//go:build !linux || nogpu || !(amd64 || arm64)

package hip

import (
	"fmt"
	"runtime"
)

func load(who vendor) (provider, error) {
	return nil, fmt.Errorf("this build for %s/%s has no %s provider", runtime.GOOS, runtime.GOARCH, who)
}
