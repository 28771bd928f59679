//go:build !(amd64 || arm64) || noasm

package simd

func machineLevels() []Kernels { return nil }
