package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestIdleFlags: what the command line gives and what cannot do anything is refused.
func TestIdleFlags(t *testing.T) {
	dir := family(t, "llama2_gqa_tied")
	for _, c := range []struct{ args, want string }{
		{"run llama2_block --backend ref --threads 2", "--threads 2: only the cpu backend"},
		{"check llama2_block --backend vulkan --threads 2", "--threads 2: only the cpu backend"},
		{"dump llama2_block --backend ref --exact", "--exact true: it belongs to the cpu backend"},
		{"run llama2_block --kernels built", "--kernels built: only the hip backend"},
		{"bench op add --m 1 --n 64 --dry-run --kernels built", "--kernels built: only the hip backend"},
		{"bench model llama2_block --dry-run --backend vulkan -t 1,2", "--threads 1,2: only the cpu backend"},
		{"bench platform --dry-run --backend hip --threads 2", "--threads 2: only the cpu backend"},
		{"tune add --dry-run --kernels built", "--kernels built: only the hip backend"},
		{"smoke --kernels built", "--kernels built: only the hip backend"},
		{"smoke --profile fill --recheck", "--recheck true: only the profile default"},
		{"run llama2_block --backend ref --tuned x.yaml", "--tuned x.yaml: the kernels of the ref backend"},
		{"run llama2_block --fp8", "--fp8 true: only the hip backend"},
		{"bench op linear --m 9 --n 64 --k 64 --dry-run --backend vulkan --fp8", "--fp8 true: only the hip backend"},
		{"dump llama2_block --chunk 7", "--chunk 7: greta dump prints one step"},
		{"dump llama2_block --cache off", "--cache off: greta dump"},
		{"run llama2_block --backend vulkan --cache here", "--cache here: packed weights are kept for the cpu"},
		{"run llama2_block --cache off --cache-limit 1GB", "--cache-limit 1GB: --cache off keeps nothing"},
		{"run llama2_block --cache here", "--cache: packed weights are kept of files"},
		{"check llama2_block --expected x --tokens 1", "--tokens 1: --expected says"},
		{"check llama2_block --chunk 3", "--chunk 3: without --expected"},
		{"gap --json -o csv", "--json true: --format says"},
		{"bench platform latency --list", "--list prints all benchmarks: latency"},
		{"run llama2_block --temperature 1", "--temperature 1: it needs --prompt or --tokens"},
		{"run llama2_block --nll", "--nll true: it needs --prompt or --tokens"},
		{"run llama2_block --stop x", "--stop [x]: it needs --prompt or --tokens"},
		{"run " + dir + " --tokens 1 --prefill 3", "--prefill 3: it is for measured runs"},
		{"run " + dir + " --tokens 1 --special", "--special true: --tokens are tokens"},
		{"run " + dir + " --tokens 1 --gen 0 --repeat-penalty 2", "--repeat-penalty 2: nothing is generated"},
		{"run " + dir + " --tokens 1 --nll --temperature 2", "--temperature 2: nothing is generated"},
		{"run " + dir + " --tokens 1 --top-k 7", "--top-k 7: at --temperature 0"},
		{"run " + dir + " --tokens 1 --weight-seed 7", "--weight-seed 7: the weights of " + dir},
		{"check " + dir + " --tokens 1 --weight-seed 7", "--weight-seed 7: the weights of " + dir},
		{"tokenize " + dir + " 1 --decode --no-bos", "--no-bos true: --decode reads ids"},
		{"plot bandwidth --list --nth 2", "--nth 2: --list draws nothing"},
	} {
		if r := greta(t, strings.Fields(c.args)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("greta %s: exit code %d, %s, want %q", c.args, r.code, r.err, c.want)
		}
	}
	// What is so anyway may be said.
	for _, args := range []string{
		"run " + dir + " --tokens 1 --gen 1 --top-k 0 --top-p 1 --kernels= --threads 0",
		"run " + dir + " --tokens 1 --gen 2 --top-k 3 --temperature 1 --seed 3 --cache off",
		"run " + dir + " --tokens 1 --gen 2 --temperature 0 --seed 3",
		"run " + dir + " --tokens 1 --gen 2 --repeat-penalty 2 --fp16 off",
		"run " + dir + " --prefill 2 --gen 1 --repeat 1 --no-limits --weight-seed 3",
		"check " + dir + " --weight-seed 3",
	} {
		if r := greta(t, strings.Fields(args)...); r.code != 0 {
			t.Errorf("greta %s: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// TestSettingsForAll: what the configuration file or a variable sets for all runs is left out where it does
// nothing.
func TestSettingsForAll(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GRETA_KERNELS", "/nowhere")
	t.Chdir(work)
	if err := os.Mkdir(filepath.Join(home, "greta"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := family(t, "llama2_gqa_tied")
	for _, c := range []struct{ config, args string }{
		{"json: true\nprefill: 3\nrepeat: 1", "run " + dir + " --tokens 1,5 --gen 2"},
		{"json: true\nprefill: 3\nrepeat: 1", "run " + dir + " --gen 1"},
		{"threads: 2\nexact: true\nfp16: on\ndevice: 1\ntuned: /nowhere", "run " + dir + " --backend ref --tokens 1 --gen 1"},
		{"top-k: 4\nseed: 3\nstop: x\nweight-seed: 4\nnll: true", "run " + dir + " --gen 1 --repeat 1"},
		{"top-k: 4\nseed: 3\nweight-seed: 4\ncache: /nowhere\ncache-limit: 1GB", "dump llama2_block"},
		{"context: 99\nno-fuse: true\nset: L=1\nkv: f32\ndtype: q8_0\nmodel: llama2_7b",
			"bench op add --m 1 --n 64 --dry-run"},
		{"weights: /nowhere\nmodel: llama2_7b", "run " + dir + " --tokens 1 --gen 1"},
		{"output: csv", "bench op add --m 1 --n 64 --dry-run --json"},
		{"json: true", "bench op add --m 1 --n 64 --dry-run -o csv"},
		{"tuned: off", "tune add --dry-run"},
		{"set: L=1\nweights: /nowhere", "bench model --profile smoke --dry-run"},
		{"output: csv\nrepeat: 3\ndevice: 1\nlabel: x\nformat: csv", "dump llama2_block"},
	} {
		if err := os.WriteFile(filepath.Join(home, "greta", "config.yaml"), []byte(c.config+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := greta(t, strings.Fields(c.args)...); r.code != 0 {
			t.Errorf("greta %s with %q: exit code %d, %s", c.args, c.config, r.code, r.err)
		}
	}
	if files, err := os.ReadDir(work); err != nil || len(files) > 0 {
		t.Errorf("files were written: %v, %v", files, err)
	}
}

// TestSettingNames: flags that one setting sets take the same values, a list of them at most.
func TestSettingNames(t *testing.T) {
	kinds := map[string]map[string][]string{} // commands by setting and type
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "internal" {
			return
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name := settingName(c, f.Name)
			if kinds[name] == nil {
				kinds[name] = map[string][]string{}
			}
			kinds[name][f.Value.Type()] = append(kinds[name][f.Value.Type()], c.CommandPath())
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&app{strings.NewReader(""), io.Discard, io.Discard, nil}).root())
	lists := []string{"chunk", "gen", "threads", "parallel"} // of greta bench model
	for name, types := range kinds {
		if len(types) > 1 && !slices.Contains(lists, name) {
			t.Errorf("the setting %s is of several types: %v", name, types)
		}
	}
	for command, flags := range namesakes {
		path := strings.Fields(command)
		c, rest, err := (&app{strings.NewReader(""), io.Discard, io.Discard, nil}).root().Find(path)
		if err != nil || len(rest) > 0 {
			t.Errorf("there is no command %s", command)
			continue
		}
		for _, name := range flags {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("greta %s has no flag --%s", command, name)
			}
		}
	}
	for _, i := range idleFlags {
		for command := range strings.SplitSeq(i.commands, ",") {
			if c, rest, err := (&app{}).root().Find(strings.Fields(command)); err != nil || len(rest) > 0 {
				t.Errorf("there is no command %s", command)
			} else if flags := strings.Split(i.flags, ","); !slices.ContainsFunc(flags, func(f string) bool {
				return c.Flags().Lookup(f) != nil
			}) && i.commands != onDevices {
				t.Errorf("greta %s has none of %q", command, flags)
			}
		}
	}
}
