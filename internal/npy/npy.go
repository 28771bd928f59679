// Package npy writes and reads float32 matrices in NumPy's file format,
// version 1.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

const magic = "\x93NUMPY\x01\x00"

// headerSize is the length of every header that Writer writes, so that it can
// be written again when the number of rows is known.
const headerSize = 128

// Writer streams the rows of a matrix.
type Writer struct {
	w          io.Writer
	rows, cols int // announced
	done       int
}

// NewWriter writes the header of a float32 matrix of that many rows and columns.
func NewWriter(w io.Writer, rows, cols int) (*Writer, error) {
	_, err := w.Write(header(rows, cols))
	return &Writer{w: w, rows: rows, cols: cols}, err
}

func header(rows, cols int) []byte {
	dict := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, cols)
	h := fmt.Appendf(nil, "%s\x00\x00%-*s\n", magic, headerSize-len(magic)-3, dict)
	binary.LittleEndian.PutUint16(h[len(magic):], uint16(headerSize-len(magic)-2))
	return h
}

// Row writes the next row.
func (w *Writer) Row(x []float32) error {
	if len(x) != w.cols || w.done == w.rows {
		return fmt.Errorf("npy: row %d has %d values, the matrix is %d by %d", w.done, len(x), w.rows, w.cols)
	}
	w.done++
	_, err := w.w.Write(tensor.Bytes(x))
	return err
}

// Close corrects the header where fewer rows came than were announced. It does
// not close the file.
func (w *Writer) Close() error {
	if w.done == w.rows {
		return nil
	}
	s, ok := w.w.(io.WriteSeeker)
	if !ok {
		return fmt.Errorf("npy: %d rows of %d were written", w.done, w.rows)
	}
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("npy: %d rows of %d were written, and the header cannot be corrected: %w", w.done, w.rows, err)
	}
	_, err := w.w.Write(header(w.done, w.cols))
	return err
}

var dictPattern = regexp.MustCompile(`^\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \}\s*$`)

// Read reads a matrix of little-endian float32 in C order.
func Read(r io.Reader) (data []float32, rows, cols int, err error) {
	var start [len(magic) + 2]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return nil, 0, 0, fmt.Errorf("npy: %w", err)
	}
	if string(start[:len(magic)]) != magic {
		return nil, 0, 0, errors.New("npy: not a version 1.0 file")
	}
	dict := make([]byte, binary.LittleEndian.Uint16(start[len(magic):]))
	if _, err := io.ReadFull(r, dict); err != nil {
		return nil, 0, 0, fmt.Errorf("npy: header: %w", err)
	}
	m := dictPattern.FindSubmatch(dict)
	if m == nil {
		return nil, 0, 0, fmt.Errorf("npy: not a float32 matrix in C order: %q", dict)
	}
	rows, err1 := strconv.Atoi(string(m[1]))
	cols, err2 := strconv.Atoi(string(m[2]))
	if err := errlist.Join(err1, err2); err != nil || cols > 0 && rows > math.MaxInt/4/cols {
		return nil, 0, 0, fmt.Errorf("npy: a matrix of %s by %s is too large", m[1], m[2])
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("npy: %w", err)
	}
	if len(body) != 4*rows*cols {
		return nil, 0, 0, fmt.Errorf("npy: %d bytes of data, %d by %d takes %d", len(body), rows, cols, 4*rows*cols)
	}
	data = make([]float32, rows*cols)
	for i := range data {
		data[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return data, rows, cols, nil
}
