// Package bridge lets another program use greta over a pair of pipes: models, texts, logits, checks and
// benchmarks, as `greta pipe` serves them and the Python package asks for them. docs/pipe.md has the protocol.
//
// This file holds the frames: how a message lies in the stream.
package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Protocol is the version of frames and operations. Sides of different versions do not talk.
const Protocol = 1

// Sizes of a frame. Both bounds keep a stream that is no stream of frames from being taken for a large one.
const (
	prefixBytes = 12       // header's bytes, uint32; payload's bytes, uint64; both little-endian
	mostHeader  = 64 << 20 // JSON
	mostPayload = 16 << 30
)

// frame is one message: a JSON object, and the bytes of its tensors where they do not lie in shared memory.
type frame struct {
	header  []byte
	payload []byte
}

// errFrame marks a stream that is none of frames.
var errFrame = errors.New("this is no frame of greta's protocol")

// readFrame reads one message. At the end of the stream, between two messages, it gives io.EOF.
func readFrame(r io.Reader) (frame, error) {
	var prefix [prefixBytes]byte
	if n, err := io.ReadFull(r, prefix[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return frame{}, io.EOF
		}
		return frame{}, fmt.Errorf("the stream ended within a frame: %w", noEOF(err))
	}
	header, payload := binary.LittleEndian.Uint32(prefix[:]), binary.LittleEndian.Uint64(prefix[4:])
	if header < 2 || header > mostHeader || payload > mostPayload {
		return frame{}, fmt.Errorf("%w: it begins with %q, which would be a header of %d bytes and a payload of %d",
			errFrame, prefix[:], header, payload)
	}
	f := frame{}
	var err error
	if f.header, err = readBytes(r, int(header)); err == nil && payload > 0 {
		f.payload, err = readBytes(r, int(payload))
	}
	if err != nil {
		return frame{}, fmt.Errorf("the stream ended within a frame: %w", noEOF(err))
	}
	return f, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readBytes reads n bytes. Memory is taken as they come, not as a prefix claims.
func readBytes(r io.Reader, n int) ([]byte, error) {
	const piece = 1 << 20
	data := make([]byte, min(n, piece))
	got := 0
	for {
		m, err := io.ReadFull(r, data[got:])
		if got += m; err != nil {
			return nil, err
		}
		if got == n {
			return data, nil
		}
		data = append(data, make([]byte, min(n-got, got))...)
	}
}

// writer writes frames, one at a time.
type writer struct {
	mu     sync.Mutex
	w      io.Writer
	buffer []byte
	err    error // of the first write that failed: nobody reads any more
	failed func(error)
}

// write writes one message. Its error is that of the stream, which is then at its end.
func (w *writer) write(header, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	b := w.buffer[:0]
	b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(payload)))
	b = append(b, header...)
	const together = 64 << 10 // what is copied to save a call of the system
	if len(payload) <= together {
		b = append(b, payload...)
		payload = nil
	}
	if cap(b) <= 1<<20 {
		w.buffer = b
	}
	_, err := w.w.Write(b)
	if err == nil && len(payload) > 0 {
		_, err = w.w.Write(payload)
	}
	if err != nil {
		w.err = err
		if w.failed != nil {
			w.failed(err)
		}
	}
	return err
}
