package errlist

import (
	"errors"
	"io"
	"testing"
)

func TestJoin(t *testing.T) {
	if err := Join(nil, nil); err != nil {
		t.Errorf("no errors give %v", err)
	}
	other := errors.New("other")
	err := Join(nil, io.EOF, other)
	if !errors.Is(err, io.EOF) || !errors.Is(err, other) || err.Error() != "EOF\nother" {
		t.Errorf("two errors give %v", err)
	}
}
