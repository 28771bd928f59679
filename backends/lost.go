package backends

import "errors"

// ErrLost marks errors of a device that is gone: nothing that lies on it can be used any more, and it must be opened
// anew.
var ErrLost = errors.New("the device is lost")

// Lost marks an error so.
func Lost(err error) error { return lost{err} }

type lost struct{ error }

func (l lost) Unwrap() []error { return []error{l.error, ErrLost} }
