package pictures

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"strings"
	"sync"

	"git.sr.ht/~sbinet/gg"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// canvas is what a chart is drawn on. Lengths are points, a 72nd of an inch; y grows downwards.
type canvas interface {
	line(ps []xy, s stroke)
	fill(ps []xy, c color.RGBA)
	disc(at xy, radius float64, c color.RGBA)
	// text writes a line whose place along it is at its start (0), middle (.5) or end (1); up turns it by 90°.
	text(at xy, s string, size, place float64, up bool)
}

// xy is a point of a canvas, or of a chart's data.
type xy struct{ X, Y float64 }

// stroke is how a line is drawn; without dashes it is solid.
type stroke struct {
	color  color.RGBA
	width  float64
	dashes []float64
}

// svgCanvas writes SVG. The fonts are those of whoever shows it.
type svgCanvas struct{ bytes.Buffer }

func newSVG(width, height float64) *svgCanvas {
	c := &svgCanvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%.4gpt" height="%.4gpt" viewBox="0 0 %.4g %.4g" `+
		`font-family="Liberation Sans, Arial, Helvetica, sans-serif">`+"\n", width, height, width, height)
	return c
}

func (c *svgCanvas) end() string { return c.String() + "</svg>\n" }

func places(ps []xy) string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.2f,%.2f", p.X, p.Y)
	}
	return b.String()
}

func (c *svgCanvas) line(ps []xy, s stroke) {
	fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%.4g"`, places(ps), hex(s.color), s.width)
	for i, d := range s.dashes {
		if i == 0 {
			fmt.Fprintf(c, ` stroke-dasharray="%.4g`, d)
			continue
		}
		fmt.Fprintf(c, " %.4g", d)
	}
	if len(s.dashes) > 0 {
		c.WriteByte('"')
	}
	c.WriteString("/>\n")
}

func (c *svgCanvas) fill(ps []xy, paint color.RGBA) {
	fmt.Fprintf(c, `<polygon points="%s" fill="%s"/>`+"\n", places(ps), hex(paint))
}

func (c *svgCanvas) disc(at xy, radius float64, paint color.RGBA) {
	fmt.Fprintf(c, `<circle cx="%.2f" cy="%.2f" r="%.4g" fill="%s"/>`+"\n", at.X, at.Y, radius, hex(paint))
}

func (c *svgCanvas) text(at xy, s string, size, place float64, up bool) {
	fmt.Fprintf(c, `<text x="%.2f" y="%.2f" font-size="%.4g" fill="%s"`, at.X, at.Y, size, hex(ink))
	switch place {
	case .5:
		c.WriteString(` text-anchor="middle"`)
	case 1:
		c.WriteString(` text-anchor="end"`)
	}
	if up {
		fmt.Fprintf(c, ` transform="rotate(-90 %.2f %.2f)"`, at.X, at.Y)
	}
	if s != "" { // a font that is wider than the one that was counted on is pressed, not cut
		fmt.Fprintf(c, ` textLength="%.2f" lengthAdjust="spacingAndGlyphs"`, textWidth(s, size))
	}
	fmt.Fprintf(c, ">%s</text>\n", html.EscapeString(s))
}

// pngScale is the pixels of a point.
const pngScale = 2

// pngCanvas draws pixels.
type pngCanvas struct{ to *gg.Context }

func newPNG(width, height float64) *pngCanvas {
	return &pngCanvas{gg.NewContext(int(math.Ceil(width*pngScale)), int(math.Ceil(height*pngScale)))}
}

func (c *pngCanvas) write(w io.Writer) error { return c.to.EncodePNG(w) }

func (c *pngCanvas) path(ps []xy) {
	for _, p := range ps {
		c.to.LineTo(p.X*pngScale, p.Y*pngScale) // the first moves
	}
}

func (c *pngCanvas) line(ps []xy, s stroke) {
	dashes := make([]float64, len(s.dashes))
	for i, d := range s.dashes {
		dashes[i] = d * pngScale
	}
	c.path(ps)
	c.to.SetDash(dashes...)
	c.to.SetLineWidth(s.width * pngScale)
	c.to.SetColor(s.color)
	c.to.Stroke()
}

func (c *pngCanvas) fill(ps []xy, paint color.RGBA) {
	c.path(ps)
	c.to.SetColor(paint)
	c.to.Fill()
}

func (c *pngCanvas) disc(at xy, radius float64, paint color.RGBA) {
	c.to.DrawCircle(at.X*pngScale, at.Y*pngScale, radius*pngScale)
	c.to.SetColor(paint)
	c.to.Fill()
}

func (c *pngCanvas) text(at xy, s string, size, place float64, up bool) {
	c.to.Push()
	defer c.to.Pop()
	x, y := at.X*pngScale, at.Y*pngScale
	if up {
		c.to.RotateAbout(-math.Pi/2, x, y)
	}
	c.to.SetFontFace(face(size * pngScale))
	c.to.SetColor(ink)
	c.to.DrawStringAnchored(s, x, y, place, 0)
}

// typeface is the font of pictures of pixels, by which text is measured for all.
var typeface = sync.OnceValue(func() *opentype.Font {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil { // it is a part of the program
		panic(err)
	}
	return f
})

// face is the font with an em of so many pixels.
func face(size float64) font.Face {
	f, err := opentype.NewFace(typeface(), &opentype.FaceOptions{Size: size, DPI: 72})
	if err != nil { // sizes are constants
		panic(err)
	}
	return f
}

// textWidth is about how wide a line of text is, in points.
func textWidth(s string, size float64) float64 {
	return float64(font.MeasureString(face(size), s)) / 64
}
