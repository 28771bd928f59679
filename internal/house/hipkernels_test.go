package house

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/internal/unpack"
)

const hipKernels = "../../backends/hip/kernels"

// TestHIPKernels: what the program carries of HIP's kernels is what lies in their folder.
func TestHIPKernels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(hipKernels, "*"))
	if err != nil || len(files) < 40 {
		t.Fatal(files, err)
	}
	var want bytes.Buffer
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%s %d\n%s", filepath.Base(f), len(text), text)
	}
	if *rewrite {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err == nil {
			_, err = z.Write(want.Bytes())
		}
		if err == nil {
			err = z.Close()
		}
		if err == nil {
			err = os.WriteFile(hipKernels+".gz", b.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	packed, err := os.ReadFile(hipKernels + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	if unpack.Text("kernels.gz", string(packed)) != want.String() {
		t.Error("backends/hip/kernels.gz is not of the kernels beside it; run: " +
			"go test ./internal/house -run TestHIPKernels -rewrite")
	}
}
