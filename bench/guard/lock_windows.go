package guard

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// region is a byte far behind the file's text: locks are mandatory on Windows, and
// the text must stay readable for those who wait.
func region() *windows.Overlapped { return &windows.Overlapped{Offset: 1 << 30} }

// tryLock takes a file's lock, or says that another process has it.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0,
		1, 0, region())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, region())
}
