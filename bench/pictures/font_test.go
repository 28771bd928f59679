package pictures

import (
	"testing"

	"github.com/greta-project/greta/internal/unpack"
	"golang.org/x/image/font/gofont/goregular"
)

// TestFont: the font that the program carries is Go Regular, whole.
func TestFont(t *testing.T) {
	if unpack.Text("goregular.ttf.gz", packedFont) != string(goregular.TTF) {
		t.Error("goregular.ttf.gz is not golang.org/x/image/font/gofont/goregular: write its TTF there with gzip -9n")
	}
}
