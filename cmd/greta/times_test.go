package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestVerboseTimes: --verbose says how long each part of the start took, and the parts are no more than the whole.
func TestVerboseTimes(t *testing.T) {
	r := greta(t, "run", "../../testdata/tolstoy-2.7m", "--prompt", "Hello", "--gen", "1", "--verbose")
	if r.code != 0 {
		t.Fatal(r.err)
	}
	ms := func(part string) float64 {
		m := regexp.MustCompile(regexp.QuoteMeta(part) + ` ([0-9.]+) ms`).FindStringSubmatch(r.err)
		if m == nil {
			t.Fatalf("no time of %q in\n%s", part, r.err)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, part := range []string{"until then", "model", "tokenizer", "waiting for the device", "(the device", "paths",
		"prompt", "allocating", "copying", "made ready in"} {
		ms(part)
	}
	if whole, made := ms("weights in"), ms("packing and converting"); made <= 0 || made > whole+1 {
		t.Errorf("%v ms of packing in %v ms of loading", made, whole)
	}
}

// TestDeviceErrorFirst: device and model are opened beside each other; where neither can be, the device is named.
func TestDeviceErrorFirst(t *testing.T) {
	r := greta(t, "run", "no/such/model.gguf", "--backend", "abacus")
	if r.code != exitNoDevice || !strings.Contains(r.err, "abacus") || strings.Contains(r.err, "no/such") {
		t.Errorf("code %d: %s", r.code, r.err)
	}
}
