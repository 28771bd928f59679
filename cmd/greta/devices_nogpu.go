//go:build nogpu

package main

func gpuDevices() []deviceLine { return nil }

func hipDevices() []deviceLine { return nil }
