//go:build !linux

package child

import "os"

// Stdout gives the child's standard output.
func Stdout() (*os.File, error) { return os.Stdout, nil }
