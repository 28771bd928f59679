//go:build amd64 && !linux && !noasm

package simd

// grantTiles says whether the system lets the matrix unit be used: how it is
// asked is known of Linux only.
func grantTiles() bool { return false }
