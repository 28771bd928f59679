package pictures

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/golang/freetype/raster"
	"github.com/golang/freetype/truetype"
	"github.com/greta-project/greta/internal/unpack"
	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
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
type pngCanvas struct {
	to     *image.RGBA
	shapes *raster.Rasterizer
}

func newPNG(width, height float64) *pngCanvas {
	w, h := int(math.Ceil(width*pngScale)), int(math.Ceil(height*pngScale))
	return &pngCanvas{image.NewRGBA(image.Rect(0, 0, w, h)), raster.NewRasterizer(w, h)}
}

func (c *pngCanvas) write(w io.Writer) error { return png.Encode(w, c.to) }

// pixels is a point in 64ths of a pixel.
func pixels(p xy) fixed.Point26_6 {
	const unit = pngScale * 64
	return fixed.Point26_6{X: fixed.Int26_6(math.Round(p.X * unit)), Y: fixed.Int26_6(math.Round(p.Y * unit))}
}

func path(ps []xy) raster.Path {
	var out raster.Path
	for i, p := range ps {
		if i == 0 {
			out.Start(pixels(p))
			continue
		}
		out.Add1(pixels(p))
	}
	return out
}

// paint draws what was added to the shapes.
func (c *pngCanvas) paint(paint color.RGBA) {
	p := raster.NewRGBAPainter(c.to)
	p.SetColor(paint)
	c.shapes.UseNonZeroWinding = true
	c.shapes.Rasterize(p)
	c.shapes.Clear()
}

func (c *pngCanvas) line(ps []xy, s stroke) {
	for _, part := range dashed(ps, s.dashes) {
		c.shapes.AddStroke(path(part), fixed.Int26_6(s.width*pngScale*64), raster.RoundCapper, raster.RoundJoiner)
	}
	c.paint(s.color)
}

// dashed cuts a line into the parts that are drawn: lengths, none of them 0, are drawn and left out by turns. Without
// any the line is whole.
func dashed(ps []xy, lengths []float64) [][]xy {
	if len(lengths) == 0 || len(ps) == 0 {
		return [][]xy{ps}
	}
	var out [][]xy
	part := ps[:1:1]
	turn, left := 0, lengths[0]
	for i := 1; i < len(ps); i++ {
		from, to := ps[i-1], ps[i]
		length := math.Hypot(to.X-from.X, to.Y-from.Y)
		done := 0.0
		for length-done >= left {
			done += left
			at := xy{from.X + (to.X-from.X)*done/length, from.Y + (to.Y-from.Y)*done/length}
			if turn%2 == 0 {
				out = append(out, append(part, at))
			}
			part = []xy{at}
			turn++
			left = lengths[turn%len(lengths)]
		}
		left -= length - done
		part = append(part, to)
	}
	if turn%2 == 0 {
		out = append(out, part)
	}
	return out
}

func (c *pngCanvas) fill(ps []xy, paint color.RGBA) {
	c.shapes.AddPath(path(append(ps[:len(ps):len(ps)], ps[0])))
	c.paint(paint)
}

func (c *pngCanvas) disc(at xy, radius float64, paint color.RGBA) {
	around := make([]xy, 48)
	for i := range around {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(len(around)))
		around[i] = xy{at.X + radius*cos, at.Y + radius*sin}
	}
	c.fill(around, paint)
}

func (c *pngCanvas) text(at xy, s string, size, place float64, up bool) {
	f := face(size * pngScale)
	width := font.MeasureString(f, s)
	d := font.Drawer{Dst: c.to, Src: image.NewUniform(ink), Face: f}
	if !up {
		d.Dot = pixels(at)
		d.Dot.X -= fixed.Int26_6(place * float64(width))
		d.DrawString(s)
		return
	}
	// Drawn along a strip, which is then turned to the left about its base line's place.
	height := f.Metrics().Height.Ceil()
	strip := image.NewAlpha(image.Rect(0, -height, width.Ceil(), height))
	d.Dst, d.Src = strip, image.Opaque
	d.DrawString(s)
	x, y := int(math.Round(at.X*pngScale)), int(math.Round(at.Y*pngScale+place*float64(width)/64))
	turned := image.NewAlpha(image.Rect(x-height, y-strip.Rect.Max.X, x+height, y))
	for j := -height; j < height; j++ {
		for i := range strip.Rect.Max.X {
			turned.SetAlpha(x+j, y-1-i, strip.AlphaAt(i, j))
		}
	}
	draw.DrawMask(c.to, turned.Rect, image.NewUniform(ink), image.Point{}, turned, turned.Rect.Min, draw.Over)
}

// packedFont is golang.org/x/image/font/gofont/goregular in half of its bytes.
//
//go:embed goregular.ttf.gz
var packedFont string

// typeface is the font of pictures of pixels, by which text is measured for all.
var typeface = sync.OnceValue(func() *truetype.Font {
	f, err := truetype.Parse([]byte(unpack.Text("goregular.ttf.gz", packedFont)))
	if err != nil { // it is a part of the program
		panic(err)
	}
	return f
})

// face is the font with an em of so many pixels.
func face(size float64) font.Face {
	return truetype.NewFace(typeface(), &truetype.Options{Size: size, DPI: 72, GlyphCacheEntries: 1})
}

// textWidth is about how wide a line of text is, in points.
func textWidth(s string, size float64) float64 {
	return float64(font.MeasureString(face(size), s)) / 64
}
