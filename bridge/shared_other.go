//go:build !linux

package bridge

import "errors"

// sharing says that no memory is shared here: tensors go through the pipe.
const sharing = ""

var errNoSharing = errors.New("memory is shared on Linux only; send the tensor as the frame's payload")

func newShared(int) (string, []byte, func(), error) { return "", nil, nil, errNoSharing }

func mapShared(string, int) ([]byte, func(), error) { return nil, nil, errNoSharing }
