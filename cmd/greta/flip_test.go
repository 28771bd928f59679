package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// survives runs a damaged model and checks that the end is an orderly one: code
// 0 (the damage is in a value that does not matter), 1 (not finite), 2 or 6 (too large).
func survives(t *testing.T, what string, args ...string) (code int) {
	t.Helper()
	start := time.Now()
	r := greta(t, append([]string{"run"}, args...)...)
	switch r.code {
	case 0, exitFailed, exitUsage, exitMemory:
	default:
		t.Errorf("%s: exit code %d, %s", what, r.code, r.err)
	}
	if strings.Contains(r.err, "internal error") || strings.Contains(r.err, "goroutine") {
		t.Errorf("%s: %s", what, r.err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("%s: it took %v", what, took)
	}
	return r.code
}

// A GGUF file with changed bits in its metadata or tensor table never
// crashes, hangs or takes all memory.
func TestFlippedGGUF(t *testing.T) {
	good, err := os.ReadFile(testfiles.Shared(t, "data", "stories260K", "stories260K.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	rng := rand.New(rand.NewPCG(1, 2))
	n := 150
	if !testfiles.Exhaustive() {
		n = 40
	}
	// The vocabulary fills most of the header; what is behind it decides more.
	table := strings.Index(string(good), "llama.context_length")
	end := strings.Index(string(good), "blk.1.attn_norm")
	codes := map[int]int{}
	for i := range n {
		bad := append([]byte(nil), good...)
		at := rng.IntN(end)
		if i%4 != 0 {
			at = table + rng.IntN(end-table)
		}
		bit := byte(1) << rng.IntN(8)
		bad[at] ^= bit
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		codes[survives(t, "byte "+strconv.Itoa(at)+", bit "+strconv.Itoa(int(bit)), path, "--prompt", "Once", "--gen", "2")]++
	}
	t.Logf("exit codes %v", codes)
	if codes[exitUsage] == 0 {
		t.Error("no damage was noticed")
	}
}

// The same for the header of safetensors.
func TestFlippedSafetensors(t *testing.T) {
	dir := family(t, "qwen2")
	path := filepath.Join(dir, "model.safetensors")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	codes := map[int]int{}
	n := 100
	if !testfiles.Exhaustive() {
		n = 40
	}
	for range n {
		bad := append([]byte(nil), good...)
		at := rng.IntN(3000)
		if rng.IntN(8) == 0 {
			at %= 8 // the header's length
		}
		bad[at] ^= byte(1) << rng.IntN(8)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		codes[survives(t, "byte "+strconv.Itoa(at), dir, "--tokens", "1,2", "--gen", "2")]++
	}
	if codes[exitUsage] == 0 {
		t.Errorf("no damage was noticed: %v", codes)
	}
}

// Sizes in config.json that are wrong, huge or no numbers never crash.
func TestOddConfig(t *testing.T) {
	names := []string{"llama2_gqa_tied", "gemma2", "mixtral", "gpt_neox", "phi3"}
	if !testfiles.Exhaustive() {
		names = names[1:3]
	}
	for _, name := range names {
		dir := family(t, name)
		path := filepath.Join(dir, "config.json")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(good), "\n")
		for i, l := range lines {
			key, value, ok := strings.Cut(l, ": ")
			if _, err := strconv.ParseFloat(strings.TrimSuffix(value, ","), 64); !ok || err != nil {
				continue
			}
			// Each line has a third of the values, so that every value meets many lines.
			for k, odd := range []string{"0", "-1", "3", "0.5", "1e300", "9223372036854775807", "null", `"x"`, "[1, 2]", "{}",
				"true"} {
				if k%3 != i%3 && odd != "0" || !testfiles.Exhaustive() && k != i%11 {
					continue
				}
				tail := ""
				if strings.HasSuffix(value, ",") {
					tail = ","
				}
				changed := append([]string(nil), lines...)
				changed[i] = key + ": " + odd + tail
				if err := os.WriteFile(path, []byte(strings.Join(changed, "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
				survives(t, name+": "+strings.TrimSpace(changed[i]), dir, "--tokens", "1,2,3", "--gen", "2")
			}
		}
	}
}
