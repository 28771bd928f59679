//go:build nogpu

package main

// gpuAreas is empty: this build has no GPUs.
var gpuAreas []string

func (d *doctor) probe(string) {}
