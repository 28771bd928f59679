// Package liberationserifregular has one sans serif for all faces: see README.md.
package liberationserifregular

import "golang.org/x/image/font/gofont/goregular"

// TTF is a TrueType font.
var TTF = goregular.TTF
