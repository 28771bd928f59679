package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What the command line gives and what could not do anything is refused here. Variables and
// the configuration file are for all runs: what they set is left out where it does nothing.

// setting marks a flag whose value a variable or the configuration file gave.
const setting = "setting"

// given says whether the command line gives a flag; without flags it gives none.
func given(s *pflag.FlagSet, name string) bool {
	if s == nil {
		return false
	}
	f := s.Lookup(name)
	return f != nil && f.Changed && f.Annotations[setting] == nil
}

// asked is what flags of a command say, wherever it comes from.
type asked struct{ c *cobra.Command }

// value is a flag's, "" where the command has none of this name.
func (a asked) value(name string) string {
	if f := a.c.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

func (a asked) has(name string) bool { return a.c.Flags().Changed(name) }

func (a asked) backend(names ...string) bool { return slices.Contains(names, a.value("backend")) }

// measured says whether greta run has no prompt.
func (a asked) measured() bool { return !a.has("prompt") && !a.has("tokens") && !a.has("prompts") }

// many says whether greta run gives many answers.
func (a asked) many() bool {
	return a.has("prompts") || a.has("choices") && a.value("choices") != "1" || a.has("best-of")
}

// silent says whether greta run generates nothing behind a prompt.
func (a asked) silent() bool {
	return a.value("gen") == "0" || !a.has("gen") && (a.has("logits") || a.value("nll") == "true")
}

// idle are flags that do nothing in a case.
type idle struct {
	commands, flags string // words
	when            func(a asked) bool
	why             string // "": whoever reads the flag refuses it
}

// commands that open a device.
const onDevices = "run,chat,check,dump,bench op,bench model,bench platform,tune,smoke"

// sampled are the flags of greta run that say how tokens are chosen, but the temperature.
const sampled = "top-k,typical-p,top-p,min-p,repeat-penalty,frequency-penalty,presence-penalty,repeat-last," +
	"logit-bias,logprobs,seed,stop,draft,prefix-cache,prefix-cache-limit"

var notCPU = []string{"ref", "vulkan", "hip"}

var idleFlags = []idle{
	{onDevices, "threads", func(a asked) bool {
		return a.backend(notCPU...)
	}, "only the cpu backend has threads to choose"},
	{onDevices, "exact", func(a asked) bool { return a.backend(notCPU...) }, "it belongs to the cpu backend"},
	{onDevices, "kernels", func(a asked) bool {
		return a.backend("cpu", "ref", "vulkan")
	}, "only the hip backend has kernels that are compiled ahead of time"},
	{onDevices, "device", func(a asked) bool { return a.backend("cpu", "ref") && a.value("device") != "0" }, ""},
	{onDevices, "fp16", func(a asked) bool { return a.backend("cpu", "ref") && a.value("fp16") == "on" }, ""},
	{"run,chat,check,dump,bench op,bench model,tune,smoke", "fp8", func(a asked) bool {
		return !a.backend("hip")
	}, "only the hip backend uses fp8 matrix instructions"},
	{"smoke", "validate", func(a asked) bool { return !a.backend("vulkan") && a.value("validate") == "on" }, ""},
	{"smoke", "fp16,fp8,recheck", func(a asked) bool {
		return a.value("profile") != "default"
	}, "only the profile default takes fast paths"},
	{"run,chat,check,bench model", "tuned", func(a asked) bool {
		return a.backend("ref") && !strings.EqualFold(a.value("tuned"), "off")
	},
		"the kernels of the ref backend have no variants"},
	{"dump", "chunk,weight-seed,cache,cache-limit", func(asked) bool {
		return true
	}, "greta dump prints one step, and loads no weights"},
	{"run,chat,check,bench model", "cache,cache-limit", func(a asked) bool {
		return a.backend("vulkan", "hip") && !strings.EqualFold(a.value("cache"), "off")
	},
		"packed weights are kept for the cpu backend only"},
	{"run,chat,check,bench model", "cache-limit", func(a asked) bool {
		return strings.EqualFold(a.value("cache"), "off")
	}, "--cache off keeps nothing"},
	{"check", "tokens,weight-seed,all", func(a asked) bool {
		return a.has("expected")
	}, "--expected says what is compared"},
	{"check", "chunk", func(a asked) bool { return !a.has("expected") }, "without --expected all tokens are one step"},
	{"tune", "tuned", func(a asked) bool { return strings.EqualFold(a.value("tuned"), "off") }, ""},
	{"bench model", "set,model,weights,dtype,prompt,gen,depth", func(a asked) bool {
		return a.value("profile") != ""
	}, ""},
	{"gap", "format", func(a asked) bool { return given(a.c.Flags(), "json") }, ""},
	{"gap", "json", func(a asked) bool {
		return a.has("format") && a.value("format") != "json"
	}, "--format says something else"},
	{"run", "tokenizer,special,temperature," + sampled + ",logits,nll", asked.measured, "it needs --prompt or --tokens"},
	{"run", "prefill,repeat", func(a asked) bool { return !a.measured() }, "it is for measured runs, without a prompt"},
	{"run", "special", func(a asked) bool { return a.has("tokens") }, "--tokens are tokens as they are"},
	{"run", "adapter", func(a asked) bool {
		return !a.has("prompts")
	}, "it needs --prompts, whose lines name adapters; --lora is for all"},
	{"run", "parallel,kv-memory,kv-tokens,capture", func(a asked) bool {
		return !a.many()
	}, "it needs --prompts or --choices"},
	{"run", "kv-memory", func(a asked) bool { return a.has("kv-tokens") }, "--kv-tokens says how much"},
	{"run", "verbose", asked.many, "it is for one answer"},
	{"run", "temperature," + sampled, func(a asked) bool { return !a.measured() && a.silent() },
		"nothing is generated; --gen says how much (with --logits or --nll: 0)"},
	// --seed promises the same text again, and at temperature 0 that is so.
	{"run", "top-k,typical-p,top-p,min-p", func(a asked) bool { return a.value("temperature") == "0" },
		"at --temperature 0 nothing is drawn, the most likely token is taken"},
	{"run", "logprobs", func(a asked) bool { return !a.has("json") }, "--json is where they are written"},
	{"serve", "prefix-cache-limit", func(a asked) bool {
		return !a.has("prefix-cache")
	}, "--prefix-cache names the folder"},
	{"run", "prefix-cache-limit", func(a asked) bool { return !a.has("prefix-cache") }, "--prefix-cache names the folder"},
	{"run", "repeat-last", func(a asked) bool {
		return strings.Contains("0 1", a.value("repeat-penalty")) &&
			a.value("frequency-penalty") == "0" && a.value("presence-penalty") == "0"
	}, "no penalty is given"},
	{"tokenize", "special,no-bos", func(a asked) bool { return a.value("decode") == "true" }, "--decode reads ids"},
	{"plot", "output,nth", func(a asked) bool { return a.value("list") == "true" }, "--list draws nothing"},
}

// refuseIdle refuses flags that the command line gives and that do nothing. A value that
// is the default is what happens anyway.
func refuseIdle(c *cobra.Command) error {
	_, command, _ := strings.Cut(c.CommandPath(), " ")
	for _, i := range idleFlags {
		if !slices.Contains(strings.Split(i.commands, ","), command) || !i.when(asked{c}) {
			continue
		}
		for name := range strings.SplitSeq(i.flags, ",") {
			f := c.Flags().Lookup(name)
			switch {
			case f == nil || !f.Changed || f.Value.String() == f.DefValue:
			case f.Annotations[setting] != nil:
				if err := leaveOut(f); err != nil {
					return err
				}
			case i.why != "":
				return usagef("--%s %s: %s", name, f.Value, i.why)
			}
		}
	}
	return nil
}

// leaveOut gives a flag its default.
func leaveOut(f *pflag.Flag) error {
	f.Changed = false
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(nil)
	}
	return f.Value.Set(f.DefValue)
}
