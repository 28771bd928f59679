package child

import (
	"os"
	"syscall"
)

// Stdout gives the child its standard output for itself: what libraries print
// there goes to standard error from then on.
func Stdout() (*os.File, error) {
	fd, err := syscall.Dup(1)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if err := syscall.Dup3(2, 1, 0); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
