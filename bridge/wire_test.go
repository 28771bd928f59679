package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// framed writes a frame as a client does.
func framed(header string, payload []byte) []byte {
	var b bytes.Buffer
	w := writer{w: &b}
	if err := w.write([]byte(header), payload); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestFrames(t *testing.T) {
	large := bytes.Repeat([]byte("tensor"), 1<<19) // more than a piece, and than what is written together
	stream := append(framed(`{"id":1}`, nil), framed(`{"id":2}`, large)...)
	r := bytes.NewReader(stream)
	a, err := readFrame(r)
	if err != nil || string(a.header) != `{"id":1}` || len(a.payload) != 0 {
		t.Fatalf("%q, %d bytes, %v", a.header, len(a.payload), err)
	}
	b, err := readFrame(r)
	if err != nil || string(b.header) != `{"id":2}` || !bytes.Equal(b.payload, large) {
		t.Fatalf("%q, %d bytes, %v", b.header, len(b.payload), err)
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for cut := 1; cut < 20; cut++ { // within prefix and header
		if _, err := readFrame(bytes.NewReader(stream[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at byte %d: %v", cut, err)
		}
	}
}

// TestClaims: sizes that a prefix claims are no memory that is taken.
func TestClaims(t *testing.T) {
	prefix := func(header uint32, payload uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, header)
		return append(binary.LittleEndian.AppendUint64(b, payload), "{}"...)
	}
	for _, bad := range [][]byte{prefix(mostHeader+1, 0), prefix(2, mostPayload+1), prefix(0, 0),
		[]byte("GET / HTTP/1.1\r\n")} {
		if _, err := readFrame(bytes.NewReader(bad)); !errors.Is(err, errFrame) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := readFrame(bytes.NewReader(prefix(2, mostPayload))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
	if allocated > 20 {
		t.Errorf("%g allocations for a payload that never came", allocated)
	}
}

// failing is a stream that nobody reads.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriterFailsOnce(t *testing.T) {
	told := 0
	w := writer{w: failing{}, failed: func(error) { told++ }}
	for range 3 {
		if err := w.write([]byte("{}"), nil); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Error(err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// FuzzFrame: whatever comes is read as frames or refused; what is read is what was written.
func FuzzFrame(f *testing.F) {
	f.Add(framed(`{"id":1,"op":"ping"}`, nil))
	f.Add(framed(`{"id":1,"op":"run-session"}`, make([]byte, 64)))
	f.Add([]byte("hello"))
	f.Add([]byte{2, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			before := len(data) - r.Len()
			frame, err := readFrame(r)
			if err != nil {
				return
			}
			if again := framed(string(frame.header), frame.payload); !bytes.Equal(again, data[before:len(data)-r.Len()]) {
				t.Fatalf("read %q, which is written as %q", data[before:len(data)-r.Len()], again)
			}
		}
	})
}
