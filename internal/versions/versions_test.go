package versions

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

var rewrite = flag.Bool("rewrite", false, "write docs/versions.md anew")

func TestPage(t *testing.T) {
	path := testfiles.Repo(t, "docs/versions.md")
	want := Greta().Page()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/versions.md is not what versions.yaml says: go test ./internal/versions -rewrite (%v)", err)
	}
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		driver, vulkan string
		want           []Part
	}{
		{"CUDA 13.0 580.159.04, compiler nvidia 13.0 (libnvrtc.so.13)", "",
			[]Part{{"cuda", "13.0"}, {"nvidia", "580.159.04"}, {"nvrtc", "13.0"}}},
		{"CUDA 12.4, compiler none", "", []Part{{"cuda", "12.4"}}},
		{"HIP 6.4.43482 6.12.12, compiler 9.0", "", []Part{{"hip", "6.4.43482"}, {"amdgpu", "6.12.12"}, {"hiprtc", "9.0"}}},
		{"llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", "1.3.230", []Part{{"vulkan", "1.3.230"}, {"llvmpipe", "22.3.6"}}},
		{"radv Mesa 25.0.7-2", "1.4.305", []Part{{"vulkan", "1.4.305"}, {"radv", "25.0.7"}}},
		{"Intel open-source Mesa driver Mesa 24.2.8", "1.3.289", []Part{{"vulkan", "1.3.289"}, {"anv", "24.2.8"}}},
		{"NVIDIA 580.159.04", "1.4.312", []Part{{"vulkan", "1.4.312"}, {"nvidia", "580.159.04"}}},
		{"", "", nil}, {"MoltenVK 1.2.9", "", nil},
	} {
		if got := Read(c.driver, c.vulkan); !slices.Equal(got, c.want) {
			t.Errorf("%q gives %v, want %v", c.driver, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		part, version string
		want          State
	}{
		{"nvidia", "580.159.04", Tested}, {"nvidia", "535.54", Expected}, {"nvidia", "525", Expected},
		{"nvidia", "470.82", Bad},
		{"nvidia", "600.1", Untried}, {"cuda", "11.8", Bad}, {"cuda", "12.10", Expected}, {"vulkan", "1.1.9", Bad},
		{"vulkan", "1.2.0", Expected}, {"hip", "5.2.0", Expected}, {"hip", "5.1.9", Bad}, {"amdgpu", "6.8.5", Untried},
		{"llvmpipe", "22.3.6", Tested}, {"llvmpipe", "22.3.60", Expected}, {"nobody", "1", Untried},
	} {
		if v := Judge(Part{c.part, c.version}); v.State != c.want || v.Why == "" || v.Name == "" {
			t.Errorf("%s %s: %+v, want %s", c.part, c.version, v, c.want)
		}
	}
}

func TestTableIsRead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"parts: [{part: a, name: A, used: b, rules: [{below: '1', state: fine, why: c}]}]", "the state expected or bad"},
		{"parts: [{part: a, name: A, used: b, rules: [{below: '1', state: bad}]}]", "a reason"},
		{"parts: [{part: a, name: A, used: b, rules: [{from: '2.10', below: '2.9', state: bad, why: c}]}]",
			"nothing is from 2.10"},
		{"tested: [{part: b, version: '1', where: c}]", "a known part"},
		{"party: []", "party"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
