package house

import (
	"path/filepath"
	"testing"
)

// mostModels is how many files the built-in models and their blocks may be: one serves kin, and a block that no other
// model has stands behind it.
const mostModels = 45

func TestModelFiles(t *testing.T) {
	all, err := filepath.Glob("../../models/*.yaml")
	if err != nil || len(all) < 20 || len(all) > mostModels {
		t.Errorf("models/ has %d files, %d are the most (%v)", len(all), mostModels, err)
	}
}
