//go:build linux && (amd64 || arm64) && !nogpu

package platform

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
)

// TestVulkan runs every benchmark that Vulkan has, at small sizes, on whatever
// device there is, a software one too: results are right, and what is not there
// says so.
func TestVulkan(t *testing.T) {
	dev, err := vulkan.New(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE")})
	var none *backends.NoDevice
	if errors.As(err, &none) && os.Getenv("GRETA_REQUIRE_VULKAN") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	plan := []profile.Platform{
		{Bench: "launch"},
		{Bench: "memcpy", Params: map[string]profile.Text{"bytes": "4096,100004"}},
		{Bench: "stream", Params: map[string]profile.Text{"n": "65536", "block": "64"}},
		{Bench: "latency", Params: map[string]profile.Text{"bytes": "16384,65536"}},
		{Bench: "cache", Params: map[string]profile.Text{"bytes": "16384,65536"}},
		{Bench: "cache", Params: map[string]profile.Text{"bytes": "2048,8192,12288,32768", "block": "128"}},
		{Bench: "l2-cache", Params: map[string]profile.Text{"chunks": "3"}},
		{Bench: "l2-stream", Params: map[string]profile.Text{"n": "4096,65536", "threads": "131072"}},
		{Bench: "strides", Params: map[string]profile.Text{"stride": "0,3", "rounds": "16"}},
		{Bench: "small-kernels", Params: map[string]profile.Text{"n": "4096,16384,65536"}},
		{Bench: "roofline", Params: map[string]profile.Text{"n": "4096", "steps": "0,4,128"}},
		{Bench: "vec_add", Params: map[string]profile.Text{"n": "1003"}},
		{Bench: "incore"}, {Bench: "um-stream"}, {Bench: "library"},
	}
	right, begin := map[string]int{}, time.Now()
	err = Run(context.Background(), Options{Device: dev, Plan: plan, Repetitions: 1, MinTime: 1,
		Progress: func(b string, _, _ int) {
			t.Logf("%v %s", time.Since(begin).Round(time.Millisecond), b)
		}, Emit: func(r *record.Result) error {
			bench := strings.Split(r.Bench, "/")[1]
			switch {
			case r.Verdict == record.OK:
				right[bench]++
			case r.Verdict != record.Skipped || r.Reason == "":
				t.Errorf("%s: %s: %s", r.Name(), r.Verdict, r.Reason)
			}
			return nil
		}})
	if err != nil {
		t.Error(err)
	}
	for bench, least := range map[string]int{"launch": 4, "memcpy": 4, "stream": 6, "latency": 2, "l2-cache": 1,
		"l2-stream": 8,
		"strides":   4, "small-kernels": 8, "roofline": 3, "vec_add": 1, "roof": 2} {
		if right[bench] < least {
			t.Errorf("%s has %d right results, %d are expected", bench, right[bench], least)
		}
	}
}
