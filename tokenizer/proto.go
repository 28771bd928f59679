// A reader of protocol buffers' wire format, as far as SentencePiece models
// need it (https://protobuf.dev/programming-guides/encoding/).

package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// field is one field of a message: num for varints and fixed sizes, data for
// the length-delimited, which points into the file's bytes.
type field struct {
	number int
	wire   int
	num    uint64
	data   []byte
}

func (f field) bool() bool       { return f.num != 0 }
func (f field) int32() int32     { return int32(f.num) }
func (f field) float() float32   { return math.Float32frombits(uint32(f.num)) }
func (f field) text() string     { return string(f.data) }
func (f field) is(wire int) bool { return f.wire == wire }

// Wire types.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// eachField visits a message's fields in order; at is where msg begins in its file.
func eachField(msg []byte, at int, visit func(f field, at int) error) error {
	for i := 0; i < len(msg); {
		start := i
		key, n := binary.Uvarint(msg[i:])
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29-1 {
			return fmt.Errorf("byte %d: expected a protobuf field, found none", at+start)
		}
		i += n
		f := field{number: int(key >> 3), wire: int(key & 7)}
		rest := len(msg) - i
		switch f.wire {
		case wireVarint:
			if f.num, n = binary.Uvarint(msg[i:]); n <= 0 {
				return fmt.Errorf("byte %d: field %d: number cut off or over 64 bits", at+start, f.number)
			}
			i += n
		case wireFixed64:
			if rest < 8 {
				return fmt.Errorf("byte %d: field %d: expected 8 bytes, found %d", at+start, f.number, rest)
			}
			f.num = binary.LittleEndian.Uint64(msg[i:])
			i += 8
		case wireFixed32:
			if rest < 4 {
				return fmt.Errorf("byte %d: field %d: expected 4 bytes, found %d", at+start, f.number, rest)
			}
			f.num = uint64(binary.LittleEndian.Uint32(msg[i:]))
			i += 4
		case wireBytes:
			size, n := binary.Uvarint(msg[i:])
			if n <= 0 || size > uint64(len(msg)-i-n) {
				return fmt.Errorf("byte %d: field %d: %d bytes announced, %d left", at+start, f.number, size, max(0, rest-n))
			}
			i += n
			f.data = msg[i : i+int(size)]
			i += int(size)
		default:
			return fmt.Errorf("byte %d: field %d has wire type %d, which no SentencePiece model uses", at+start, f.number,
				f.wire)
		}
		if err := visit(f, at+i-len(f.data)); err != nil {
			return err
		}
	}
	return nil
}
