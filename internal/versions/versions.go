// Package versions knows which drivers and libraries greta was tested with, which are expected to work, and which are
// known not to. Its table is versions.yaml; docs/versions.md, greta doctor and the warning at a device's first use
// are made of it.
package versions

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/sorting"
)

//go:embed versions.yaml
var tableText []byte

// Part is a driver or library with its version as it was read: {"nvrtc", "13.0"}.
type Part struct {
	Part    string `json:"part" yaml:"part"`
	Version string `json:"version" yaml:"version"`
}

// State says what is known of a version.
type State string

// The states.
const (
	Tested   State = "tested"   // CI or a run on a card had just this version
	Expected State = "expected" // it should work, for the reason given
	Untried  State = "untried"  // nothing is known
	Bad      State = "bad"      // it is known not to work, for the reason given
)

// Verdict is what the table says of a part.
type Verdict struct {
	Part
	Name  string `json:"name"`
	State State  `json:"state"`
	Why   string `json:"why"`
}

func (v Verdict) String() string {
	return fmt.Sprintf("%s %s: %s", v.Name, v.Version, map[State]string{Tested: "tested, ", Expected: "expected to work: ",
		Untried: "", Bad: "known not to work: "}[v.State]+v.Why)
}

// Rule is a range of versions: from (included) to below (not included), each empty for none.
type Rule struct {
	From  string `yaml:"from"`
	Below string `yaml:"below"`
	State State  `yaml:"state"`
	Why   string `yaml:"why"`
}

// Table is versions.yaml.
type Table struct {
	Parts []struct {
		Part  string `yaml:"part"`
		Name  string `yaml:"name"`
		Used  string `yaml:"used"` // for what
		Rules []Rule `yaml:"rules"`
	} `yaml:"parts"`
	Tested []struct {
		Part  `yaml:",inline"`
		Where string `yaml:"where"`
	} `yaml:"tested"`
}

// Parse reads a table, and refuses unknown keys, parts and states.
func Parse(text []byte) (*Table, error) {
	var t Table
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("versions.yaml: %w", err)
	}
	known := map[string]bool{}
	for _, p := range t.Parts {
		known[p.Part] = true
		for _, r := range p.Rules {
			if r.State != Expected && r.State != Bad || r.Why == "" || r.From == "" && r.Below == "" {
				return nil, fmt.Errorf("versions.yaml: %s: a rule needs a range, a reason, and the state expected or bad: %+v",
					p.Part, r)
			}
			if r.From != "" && r.Below != "" && !less(r.From, r.Below) {
				return nil, fmt.Errorf("versions.yaml: %s: nothing is from %s and below %s", p.Part, r.From, r.Below)
			}
		}
	}
	for _, x := range t.Tested {
		if !known[x.Part.Part] || x.Version == "" || x.Where == "" {
			return nil, fmt.Errorf("versions.yaml: tested: %+v: a known part, a version and where are needed", x)
		}
	}
	return &t, nil
}

var table = sync.OnceValue(func() *Table {
	t, err := Parse(tableText)
	if err != nil {
		panic(err) // part of the program: its test reads it
	}
	return t
})

// Judge says what greta's table knows of a part.
func Judge(p Part) Verdict { return table().Judge(p) }

// Judge says what the table knows of a part.
func (t *Table) Judge(p Part) Verdict {
	v := Verdict{Part: p, Name: p.Part, State: Untried,
		Why: "greta was not tried with it, and nothing is known against it"}
	for _, known := range t.Parts {
		if known.Part != p.Part {
			continue
		}
		v.Name = known.Name
		for _, x := range t.Tested {
			if x.Part == p {
				v.State, v.Why = Tested, x.Where
				return v
			}
		}
		for _, r := range known.Rules {
			if (r.From == "" || !less(p.Version, r.From)) && (r.Below == "" || less(p.Version, r.Below)) {
				v.State, v.Why = r.State, r.Why
				return v
			}
		}
	}
	return v
}

// less compares versions number by number; what is missing counts as 0.
func less(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	at := func(list []string, i int) int {
		if i >= len(list) {
			return 0
		}
		n, _ := strconv.Atoi(list[i])
		return n
	}
	for i := range max(len(x), len(y)) {
		if m, n := at(x, i), at(y, i); m != n {
			return m < n
		}
	}
	return false
}

// What backends call their drivers: "CUDA 13.0 580.159.04, compiler nvidia 13.0 (libnvrtc.so.13)",
// "HIP 6.4.43482 6.12.12, compiler amd 6.4", "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", "NVIDIA 580.159.04".
var patterns = []struct {
	find  *regexp.Regexp
	parts []string // of the groups
}{
	{regexp.MustCompile(`^CUDA (\d+\.\d+)(?: (\d[\d.]*))?`), []string{"cuda", "nvidia"}},
	{regexp.MustCompile(`^CUDA .*compiler (?:nvidia )?(\d+\.\d+)`), []string{"nvrtc"}},
	{regexp.MustCompile(`^HIP (\d+\.\d+(?:\.\d+)?)(?: (\d[\d.]*))?`), []string{"hip", "amdgpu"}},
	{regexp.MustCompile(`^HIP .*compiler (?:amd )?(\d+\.\d+)`), []string{"hiprtc"}},
	{regexp.MustCompile(`^NVIDIA (\d[\d.]*)`), []string{"nvidia"}},
	{regexp.MustCompile(`^llvmpipe.* Mesa (\d[\d.]*)`), []string{"llvmpipe"}},
	{regexp.MustCompile(`^radv.* Mesa (\d[\d.]*)`), []string{"radv"}},
	{regexp.MustCompile(`^NVK.* Mesa (\d[\d.]*)`), []string{"nvk"}},
	{regexp.MustCompile(`^Intel open-source Mesa driver.* Mesa (\d[\d.]*)`), []string{"anv"}},
}

// Read takes the versions from what a backend calls its driver, and from the version of Vulkan that the device
// offers ("" where there is none). Names that it does not know give no part.
func Read(driver, vulkan string) []Part {
	var out []Part
	if vulkan != "" {
		out = append(out, Part{"vulkan", vulkan})
	}
	for _, p := range patterns {
		if m := p.find.FindStringSubmatch(driver); m != nil {
			for i, name := range p.parts {
				if m[i+1] != "" {
					out = append(out, Part{name, strings.TrimRight(m[i+1], ".")})
				}
			}
		}
	}
	return out
}

// Page is docs/versions.md.
func (t *Table) Page() string {
	var b strings.Builder
	b.WriteString(`# Versions of drivers and libraries

<!-- Written by go test ./internal/versions -rewrite from internal/versions/versions.yaml. -->

` + "`greta doctor`" + ` reads the versions of this machine and judges them by this table; a device's
first use warns of what is known not to work, and of what nothing is known. "Tested" is what the project's CI had, or a
run on a card. "Expected" has the reason why it should work.

The program itself needs Go 1.26 to be built and nothing but the system's libc to be run; the static program not even
that.
`)
	for _, p := range t.Parts {
		fmt.Fprintf(&b, "\n## %s\n\nFor %s.\n\n| version | state | why |\n| --- | --- | --- |\n", p.Name, p.Used)
		rows := 0
		for _, x := range t.Tested {
			if x.Part.Part == p.Part {
				fmt.Fprintf(&b, "| %s | tested | %s |\n", x.Version, x.Where)
				rows++
			}
		}
		rules := slices.Clone(p.Rules)
		sorting.Sort(rules, func(x, y Rule) int { return strings.Compare(string(y.State), string(x.State)) })
		for _, r := range rules {
			words := map[State]string{Expected: "expected to work", Bad: "known not to work"}[r.State]
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.TrimSpace(prefix("from ", r.From)+prefix(" below ", r.Below)), words,
				r.Why)
			rows++
		}
		if rows == 0 {
			b.WriteString("| any | untried | it is named where it is read, and nothing is known of it |\n")
			continue
		}
		b.WriteString("| others | untried | nothing is known for or against them |\n")
	}
	b.WriteString(`
## Adding what was tried

` + "```" + `
greta doctor --json > doctor.json
go run ./tools/versions -where "Radeon RX 7900 XTX: greta smoke, all tests of the Vulkan backend" -rewrite doctor.json
` + "```" + `

adds the versions that ` + "`doctor`" + ` read there to the tested ones and writes this page. Without
` + "`-rewrite`" + ` it only says whether all of them are listed; CI does that with its own.
`)
	return b.String()
}

// Greta is the table of this program.
func Greta() *Table { return table() }

func prefix(word, s string) string {
	if s == "" {
		return ""
	}
	return word + s
}
