// Package unpack reads texts that the program carries compressed.
package unpack

import (
	"compress/gzip"
	"io"
	"strings"
)

// Text is the text of a gzip file that is embedded under a name. It panics where that is broken, as the program
// then is.
func Text(name, packed string) string {
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		panic(name + ": " + err.Error())
	}
	text, err := io.ReadAll(z)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return string(text)
}
