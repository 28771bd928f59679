//go:build !linux

package packcache

import (
	"errors"
	"io/fs"
	"os"
)

// Other systems keep nothing yet: they lack a call that reserves a file's
// blocks, or it has not been tried.
var errSystem = errors.New("packed weights are kept on Linux only so far")

func reserve(*os.File, int64) error               { return errSystem }
func diskFree(string) (int64, error)              { return 0, errSystem }
func mapFile(*os.File, int, bool) ([]byte, error) { return nil, errSystem }
func protect([]byte) error                        { return errSystem }
func unmap([]byte) error                          { return errSystem }
func lockTemporary(string) (*os.File, error)      { return nil, errSystem }
func removeOrphan(string)                         {}
func changeTime(fs.FileInfo) int64                { return 0 }

func fileNumber(fs.FileInfo) (device, number uint64) { return 0, 0 }

// Dropper gives memory back that mapped source files take while they are packed.
type Dropper struct{}

// NewDropper finds the files that are mapped now.
func NewDropper() *Dropper { return &Dropper{} }

// Drop does nothing here.
func (*Dropper) Drop([]byte) {}
