package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

// TestDraft: the first files of families that the tree has, each made as if it were unknown, can be read and built, but
// for those of which no other family is like them. GRETA_DRAFTS names a folder for what was written
// of all families that lie beside the project.
func TestDraft(t *testing.T) {
	var folders []string
	// The last has one block of a group whose others take more operands.
	for _, name := range []string{"apertus", "cohere2", "deepseek_v2", "diffllama", "mamba"} {
		folders = append(folders, testfiles.Repo(t, "testdata", "families", name))
	}
	if os.Getenv("GRETA_DRAFTS") != "" {
		var err error
		if folders, err = filepath.Glob(filepath.Join(testfiles.Shared(t, "families"), "*")); err != nil {
			t.Fatal(err)
		}
	}
	root, built := t.TempDir(), 0
	if to := os.Getenv("GRETA_DRAFTS"); to != "" {
		root = to
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		w, err := open.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		archs, _ := w.Meta("architectures")
		kind, _ := w.Meta("model_type")
		d, err := models.NewDraft(w, name, append(archs.([]string), kind.(string))...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Files {
			if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, err := models.Load(filepath.Join(dir, d.Files[0].Name))
		if err != nil {
			t.Errorf("%s, from %s: %v", name, d.From, err)
			continue
		}
		if _, err := f.Build(models.Options{Weights: w, S: 3, C: 64}); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("%s, from %s: %d tensors unplaced; %s", name, d.From, len(d.Unplaced), first)
			continue
		}
		built++
		t.Logf("%s, from %s: built, %d tensors unplaced, keys unused: %v", name, d.From, len(d.Unplaced), d.Unused)
	}
	if built < 5 {
		t.Errorf("%d of %d were built", built, len(folders))
	}
}

// TestDraftOfTwoRepeats: of a file that repeats one block or another, the draft has the one that is repeated, and it
// builds.
func TestDraftOfTwoRepeats(t *testing.T) {
	for name, want := range map[string]string{"rwkv": "mine_rwkv_block", "rwkv6": "mine_rwkv_block",
		"rwkv7": "mine_rwkv7_block"} {
		w, err := open.Open(testfiles.Repo(t, "testdata", "families", name))
		if err != nil {
			t.Fatal(err)
		}
		d, err := models.NewDraft(w, "mine")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		dir := t.TempDir()
		for _, f := range d.Files {
			if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(d.Files[0].Text, "repeat("); n != 1 || len(d.Files) != 2 || d.Files[1].Name != want+".yaml" {
			t.Errorf("%s: %d repeats, %d files: %s", name, n, len(d.Files), d.Files[0].Text)
		}
		f, err := models.Load(filepath.Join(dir, "mine.yaml"))
		if err == nil {
			_, err = f.Build(models.Options{Weights: w, S: 3, C: 64})
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, d.Files[0].Text)
		}
	}
}
