//go:build !nogpu

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/testfiles"
)

// vulkanDevice gives the flags of a Vulkan device, a software one where there is no
// other. Without any the test is skipped, unless GRETA_REQUIRE_VULKAN is set.
func vulkanDevice(t *testing.T) ([]string, vulkan.Description) {
	t.Helper()
	list, err := vulkan.List()
	if err == nil && len(list) > 0 {
		i := max(0, vulkan.Default(list))
		if name := os.Getenv("GRETA_VULKAN_DEVICE"); name != "" {
			i = slices.IndexFunc(list, func(d vulkan.Description) bool {
				return strconv.Itoa(d.Index) == name || d.UUID == name
			})
		}
		if i >= 0 {
			return []string{"--backend", "vulkan", "--device", list[i].UUID}, list[i]
		}
	}
	if os.Getenv("GRETA_REQUIRE_VULKAN") == "" {
		t.Skip("no Vulkan device: ", err)
	}
	t.Fatal("no Vulkan device: ", err)
	return nil, vulkan.Description{}
}

// brief says that a test takes few cases and tokens: with -short, and of a software device, which takes minutes for
// all, unless GRETA_REQUIRE_VULKAN is set.
func brief(d vulkan.Description) bool {
	return testing.Short() || d.Kind == vulkan.Software && os.Getenv("GRETA_REQUIRE_VULKAN") == ""
}

// Every family gives the logits and the greedy tokens that an independent
// implementation computed in float64; the tokens are chosen on the device.
func TestVulkanFamilies(t *testing.T) {
	device, d := vulkanDevice(t)
	for _, name := range families(t) {
		if brief(d) && name != "gemma2" && (name != "mixtral" || !testfiles.Exhaustive()) {
			continue // windows and norms of a kind; experts, which TestVulkanComposed has as well
		}
		t.Run(name, func(t *testing.T) {
			dir := family(t, name)
			args := append([]string{"check", dir, "--expected", filepath.Join(dir, "expected.safetensors"), "--kv", "f32",
				"--json"}, device...)
			r := greta(t, args...)
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
			}
			var g goldenReport
			if err := json.Unmarshal([]byte(r.out), &g); err != nil {
				t.Fatal(err)
			}
			if g.Positions != 96 || len(g.Greedy) != 32 || !g.GreedyOK || !(g.RelL2 <= 1e-5) {
				t.Errorf("%+v", g)
			}
			t.Logf("max abs %.2e, relative L2 %.2e", g.MaxAbs, g.RelL2)
		})
	}
}

// What is composed of operators that were made for something else: rows of a cache that are chosen as a table of pages,
// products with results, tables of distances that are computed; in brief, without the tables.
func TestVulkanComposed(t *testing.T) {
	device, d := vulkanDevice(t)
	for i, name := range []string{"deepseek_v4", "inkling"} {
		if i > 0 && brief(d) && !testfiles.Exhaustive() {
			continue
		}
		dir := testfiles.Repo(t, "testdata", "families", name)
		args := append([]string{"check", dir, "--expected", filepath.Join(dir, "expected.safetensors"), "--json"}, device...)
		r := greta(t, args...)
		var g goldenReport
		if err := json.Unmarshal([]byte(r.out), &g); err != nil || g.Positions != 96 || !g.GreedyOK || !(g.RelL2 <= 1e-5) {
			t.Errorf("%s: exit code %d: %v %+v\n%s", name, r.code, err, g, r.err)
		}
	}
}

// Families run with their matrices in blocks that the device has no kernels of for all of their operators; in
// brief, of q8_0, the first of them where not every case is asked for.
func TestVulkanDTypes(t *testing.T) {
	device, d := vulkanDevice(t)
	for i, name := range keepers {
		if i > 0 && brief(d) && !testfiles.Exhaustive() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			expected := testfiles.Repo(t, "testdata", "families", name, "expected.safetensors")
			for j, typ := range []string{"q8_0", "q4_0", "q4_k"} {
				if brief(d) && j > 0 {
					continue
				}
				limit := []float64{0.35, 1.2, 1.2}[j]
				if got := dtypeError(t, expected, typ, device...); !(got <= limit) {
					t.Errorf("%s: relative L2 %.3e, at most %.2g", typ, got, limit)
				}
			}
		})
	}
}

// The trained model continues its prompts as the reference does, in one step a token,
// launch by launch, and in chunks that are queued behind each other.
func TestVulkanTolstoy(t *testing.T) {
	device, d := vulkanDevice(t)
	dir, x := readTolstoy(t)
	for _, more := range [][]string{nil, {"--no-capture"}, {"--chunk", "3"}, {"--no-fuse"}} {
		text := x.Greedy[0]
		n := len(text.Greedy)
		switch {
		case brief(d) && len(more) > 0:
			n = min(n, 4)
		case brief(d) || len(more) > 0:
			n = min(n, 8)
		case !testfiles.Exhaustive():
			n = min(n, 24)
		}
		args := append([]string{dir, "--tokens", joinIDs(text.Tokens), "--gen", strconv.Itoa(n), "--kv", "f32",
			"--ignore-eos", "--context", strconv.Itoa(len(text.Tokens) + n)}, device...)
		rep := runReport(t, append(args, more...)...)
		if !slices.Equal(rep.GeneratedTokens, text.Greedy[:n]) {
			t.Errorf("%v: greedy %v, want %v", more, rep.GeneratedTokens, text.Greedy[:n])
		}
		if rep.Backend != "vulkan" || rep.HostUS == nil == !slices.Contains(more, "--no-capture") {
			t.Errorf("%v: backend %s, host's time %v", more, rep.Backend, rep.HostUS)
		}
	}
}

// A block's decode steps are timed one by one and as a sequence, with the same results;
// where launches run one by one, and on the host, there is no such sequence.
func TestVulkanSequence(t *testing.T) {
	device, d := vulkanDevice(t)
	n := 20
	if brief(d) {
		n = 4
	}
	args := with(small, "--context", "32", "--prefill", "9", "--gen", strconv.Itoa(n), "--repeat", "2", "--no-limits")
	for _, more := range [][]string{device, append([]string{"--no-capture"}, device...), {"--backend", "cpu"}} {
		rep := runReport(t, with(args, more...)...)
		same := slices.IndexFunc(rep.Checks, func(c report.Check) bool { return c.Name == "sequence = steps" })
		if slices.Equal(more, device) {
			if p := rep.Sequence; p == nil || p.Test != fmt.Sprint("tg", n) || len(p.SamplesMS) != 2 || p.GBPerSecond == nil ||
				same < 0 {
				t.Fatalf("%+v, checks %+v", p, rep.Checks)
			}
			var alike, all int // of the first run and two repeats, and of a warm-up between
			if _, err := fmt.Sscanf(rep.Checks[same].Note, "%d of %d outputs bit-identical", &alike, &all); err != nil ||
				alike != all || all <= 3*n {
				t.Errorf("%q, %v", rep.Checks[same].Note, err)
			}
		} else if rep.Sequence != nil || same >= 0 {
			t.Errorf("%v: a sequence: %+v, %+v", more, rep.Sequence, rep.Checks)
		}
	}
}

// A model's tokens are timed as the host chooses them and as the device does, which chooses the same.
func TestVulkanGreedy(t *testing.T) {
	device, d := vulkanDevice(t)
	n := 20
	if brief(d) {
		n = 4
	}
	args := with([]string{"models/llama2_7b.yaml", "--set", "L=2", "--set", "D=64", "--set", "H=4", "--set", "F=96",
		"--set", "V=5000", "--context", "64"},
		"--prefill", "9", "--gen", strconv.Itoa(n), "--repeat", "2", "--no-limits")
	for _, more := range [][]string{device, append([]string{"--no-capture"}, device...), {"--backend", "cpu"}} {
		rep := runReport(t, with(args, more...)...)
		same := slices.IndexFunc(rep.Checks, func(c report.Check) bool { return c.Name == "greedy = steps" })
		if slices.Equal(more, device) {
			if p := rep.Greedy; p == nil || p.Test != fmt.Sprint("tg", n) || len(p.SamplesMS) != 2 || p.GBPerSecond == nil ||
				same < 0 || !strings.HasPrefix(rep.Checks[same].Note, fmt.Sprintf("%d of %d tokens", 2*n, 2*n)) {
				t.Errorf("%+v, checks %+v", p, rep.Checks)
			}
		} else if rep.Greedy != nil || same >= 0 {
			t.Errorf("%v: tokens chosen by the device: %+v, %+v", more, rep.Greedy, rep.Checks)
		}
	}
}

// What is computed again behind a prompt begins at the recurrences' states there: of a block, of a model, and profiled.
func TestVulkanRecurrences(t *testing.T) {
	device, _ := vulkanDevice(t)
	for _, arg := range [][]string{{"models/conv_block.yaml", "--set", "D=64"}, {"../../testdata/families/mamba"}} {
		rep := runReport(t, with(with(arg, "--context", "32", "--prefill", "9", "--gen", "12", "--repeat", "2", "--profile"),
			device...)...)
		if again := cmp.Or(rep.Sequence, rep.Greedy); rep.Status != report.OK || again == nil || len(again.SamplesMS) != 2 {
			t.Errorf("%s: %s, %+v, checks %+v", arg, rep.Status, again, rep.Checks)
		}
	}
}

// Without a golden file, operators are near the reference's, and replay gives what eager
// launches give to the bit, where norms are folded into products and where
// activations are rounded. In brief of a model of two small blocks, where not every case is asked for.
func TestVulkanCheck(t *testing.T) {
	device, d := vulkanDevice(t)
	dir, _ := readTolstoy(t)
	model := []string{dir}
	if brief(d) && !testfiles.Exhaustive() {
		model = []string{"llama2_7b", "--set", "L=2", "--set", "D=64", "--set", "H=4", "--set", "F=96", "--set", "V=500",
			"--context", "32"}
	}
	for _, dtype := range []string{"f16", "q8_0"} {
		for _, fp16 := range []string{"off", "auto"} {
			if (dtype == "f16") != (fp16 == "off") && !testfiles.Exhaustive() || brief(d) && dtype == "f16" {
				continue
			}
			r := greta(t, with(with([]string{"check", "--dtype", dtype, "--fp16", fp16}, model...), device...)...)
			if r.code != 0 || !strings.Contains(r.out, "replay equals eager launches   ok") {
				t.Errorf("%s, --fp16 %s: exit code %d\n%s%s", dtype, fp16, r.code, r.out, r.err)
			}
		}
	}
}

// A device that is not there is code 3, and memory that is not there code 6, before
// anything is loaded: one clear line each.
func TestVulkanCodes(t *testing.T) {
	device, d := vulkanDevice(t)
	start := time.Now()
	layers := d.Memory()/800e6 + 8 // of 0.8 GB in f32
	r := greta(t, append([]string{"run", "llama2_7b", "--fp16", "off", "--dtype", "f32", "--set",
		fmt.Sprintf("L=%d", layers)}, device...)...)
	if r.code != exitMemory || !strings.Contains(r.err, "GB are missing") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("a model larger than the device: code %d, %s", r.code, r.err)
	}
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("it took %v to find out", took)
	}
	dir, _ := readTolstoy(t)
	for _, c := range []struct{ flag, want string }{{"no-such-card", "there are: 0 "}, {"99", `"99"`}} {
		r := greta(t, "run", dir, "--prompt", "x", "--backend", "vulkan", "--device", c.flag)
		if r.code != exitNoDevice || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("--device %s: code %d, %s", c.flag, r.code, r.err)
		}
	}
	t.Setenv("VK_DRIVER_FILES", "/nonexistent.json")
	t.Setenv("VK_ICD_FILENAMES", "/nonexistent.json")
	if r := greta(t, "run", dir, "--prompt", "x", "--backend", "vulkan"); r.code != exitNoDevice ||
		!strings.Contains(r.err, "driver") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("without a driver: code %d, %s", r.code, r.err)
	}
	for err, want := range map[error]int{
		fmt.Errorf("state kc: %w", &backends.OutOfMemory{Need: 5, What: "states", Err: errors.New("full")}): exitMemory,
		// once it was opened
		fmt.Errorf("step: %w", &backends.NoDevice{Kind: "Vulkan", Reason: "gone"}): exitFailed,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: code %d, want %d", err, got, want)
		}
	}
}

// With --invariant an answer's log-probabilities are the same to the last bit alone and beside others, and what that
// costs is printed.
func TestVulkanInvariant(t *testing.T) {
	device, d := vulkanDevice(t)
	base := append([]string{trained(t), "-n", "4", "--logprobs", "3", "--invariant", "--context", "64"}, device...)
	prompts := []string{"The army", "Prince Andrew and the count", "It was late when", "No"}
	if brief(d) {
		prompts = prompts[:2]
	}
	path := filepath.Join(t.TempDir(), "prompts.txt")
	if err := os.WriteFile(path, []byte(strings.Join(prompts, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	one, r := promptAnswers(t, with(base, "--prompts", path, "--parallel", "1")...)
	if r.code != 0 || len(one) != len(prompts) {
		t.Fatalf("exit code %d, %d answers\n%s", r.code, len(one), r.err)
	}
	all, r := promptAnswers(t, with(base, "--prompts", path, "--parallel", "4")...)
	for i := range one {
		if r.code != 0 || len(all) != len(one) || !slices.Equal(all[i].Tokens, one[i].Tokens) ||
			!reflect.DeepEqual(all[i].Logprobs, one[i].Logprobs) {
			t.Fatalf("exit code %d: another answer than alone: %+v, %+v\n%s", r.code, all, one[i], r.err)
		}
	}
	r = greta(t, append([]string{"bench", "model", "llama2_7b", "--set", "L=1", "--set", "D=64", "--set", "H=4", "--set",
		"F=96", "--set", "V=500", "--context", "64", "--parallel", "2", "-p", "4", "-n", "2", "-r", "1", "--no-store",
		"--invariant"}, device...)...)
	if r.code != 0 || !strings.Contains(r.err, "times what it takes without: prompts ") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}
