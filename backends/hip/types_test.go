package hip

import (
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	from "github.com/greta-project/greta/weights/open"
)

// TestTypesOfFamilies: every family is taken in every type of weights that products take; what else reads weights does
// not refuse one.
func TestTypesOfFamilies(t *testing.T) {
	dirs, err := filepath.Glob(testfiles.Repo(t, "testdata", "families", "*", "model.safetensors"))
	if err != nil || len(dirs) < 11 {
		t.Fatalf("%d families, %v", len(dirs), err)
	}
	archs, types := []string{"sm_90"}, []string{"q8_0", "q4_k"}
	if testfiles.Exhaustive() {
		archs = []string{"sm_90", "gfx942", "gfx1103"}
		types = []string{"f32", "f16", "f8e4m3", "q8_0", "q4_0", "q5_1", "q2_k", "q4_k", "q6_k", "iq4_nl"}
	}
	for i, path := range dirs {
		dir := filepath.Dir(path)
		switch name := filepath.Base(dir); name {
		case "baichuan", "gemma3n_text", "zamba": // read by elementwise operators, by matrices of heads
		default:
			if i%16 != 0 && !testfiles.Exhaustive() {
				continue
			}
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := from.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			file, err := models.Match(src)
			if err != nil {
				t.Fatal(err)
			}
			for _, arch := range archs {
				dev, err := openNull(arch, 0, func(program) {})
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				for _, typ := range types {
					opt := engine.Options{Model: file, Source: src, Device: dev, Context: 16}
					opt.SetType(typ)
					if err := engine.DryRun(opt, 1, 3, 16); err != nil {
						t.Errorf("%s, %s: %v", arch, typ, err)
					}
				}
			}
		})
	}
}
