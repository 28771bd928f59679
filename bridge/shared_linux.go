package bridge

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/internal/errlist"
)

// Shared memory is a file without a name (memfd). The other side opens it by the path that it has among its
// maker's open files, /proc/PID/fd/N; it is gone when neither side has it open or mapped, however they end.

// sharing says how memory is shared here.
const sharing = "memfd"

// newShared makes memory to be read by the other side. free unmaps and closes it here.
func newShared(bytes int) (path string, data []byte, free func(), err error) {
	fd, err := unix.MemfdCreate("greta", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errlist.Join(err, unix.Close(fd))
		}
	}()
	if err = unix.Ftruncate(fd, int64(bytes)); err != nil {
		return "", nil, nil, err
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return "", nil, nil, err
	}
	if data, err = unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return "", nil, nil, err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), data, func() {
		_ = unix.Munmap(data)
		_ = unix.Close(fd)
	}, nil
}

// mapShared maps the first bytes of memory that the other side made, to be read. It must be sealed, so that it
// cannot become shorter while it is read.
func mapShared(path string, bytes int) ([]byte, func(), error) {
	if !strings.HasPrefix(path, "/proc/") && !strings.HasPrefix(path, "/dev/fd/") {
		return nil, nil, errors.New("expected is a memfd, /proc/PID/fd/N")
	}
	if bytes == 0 {
		return nil, func() {}, nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, nil, errors.New("it is not sealed against becoming shorter (F_SEAL_SHRINK)")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, nil, err
	}
	if st.Size < int64(bytes) {
		return nil, nil, fmt.Errorf("it has %d bytes, the tensor ends at byte %d", st.Size, bytes)
	}
	data, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return data, func() { _ = unix.Munmap(data) }, nil
}
