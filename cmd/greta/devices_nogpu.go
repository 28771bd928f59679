//go:build nogpu

package main

func gpuDevices() []deviceLine { return nil }

func hipDevices() []deviceLine { return nil }

// gpuMembers leaves it to the opening of the device to say that there is none.
func gpuMembers(string) ([]string, error) { return []string{"0"}, nil }
