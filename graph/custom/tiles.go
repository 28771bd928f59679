package custom

import (
	"fmt"

	"github.com/greta-project/greta/tensor"
)

// Tiles lay a matrix [N, K] out as tiles of R rows and C columns: the tiles of the first R rows from left to right,
// then those of the next, each tile its rows one behind the other. What lies beyond the matrix is zero.

// TilesID names the layout, in the cache of packed weights too.
func TilesID(t [2]int) string { return fmt.Sprintf("tiles-%dx%d-1", t[0], t[1]) }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// TilesSize is the size of a packed matrix in bytes. Further dimensions before the last two count as rows.
func TilesSize(t [2]int, typ tensor.Type, shape tensor.Shape) int {
	return typ.RowBytes(1) * roundUp(shape.Rows(), t[0]) * roundUp(shape.Last(), t[1])
}

// Tile packs rows [from, to) of a dense matrix; from is a multiple of the tile's rows.
func Tile(t [2]int, dst, src []byte, typ tensor.Type, shape tensor.Shape, from, to int) error {
	size, cols := typ.RowBytes(1), shape.Last()
	wide := roundUp(cols, t[1])
	if typ.IsBlock() || len(src) < size*cols*to || len(dst) < TilesSize(t, typ, shape) {
		return fmt.Errorf("%v%v cannot be laid out in tiles of %d by %d", typ, shape, t[0], t[1])
	}
	for r := from; r < to; r++ {
		for c := 0; c < cols; c += t[1] {
			n := min(t[1], cols-c) * size
			at := ((r/t[0]*t[0])*wide + c*t[0] + (r%t[0])*t[1]) * size
			copy(dst[at:at+n], src[(r*cols+c)*size:])
		}
	}
	return nil
}
