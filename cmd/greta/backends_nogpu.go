//go:build nogpu

package main

func gpuBackends() []backend { return nil }

func isNoGPU(error) bool { return false }

func gpuMemory(error) bool { return false }
