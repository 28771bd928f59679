package house

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Every clone of the repository has testdata: it may be 6 MB more than the 19,601,860 bytes of the golden models, the
// trained one and the texts that stood there first. A family's folder is made smaller by its config.json, and remade by
// tools/gen_family.py.
const testdataBytes = 19_601_860 + 6_000_000

// TestTestdataStaysSmall holds that.
func TestTestdataStaysSmall(t *testing.T) {
	var sum int64
	err := filepath.WalkDir("../../testdata", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum < testdataBytes/2 || sum > testdataBytes {
		t.Errorf("testdata has %d bytes, %d are the most", sum, testdataBytes)
	}
	t.Logf("%d bytes of %d", sum, testdataBytes)
}
