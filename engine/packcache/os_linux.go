package packcache

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/internal/mapped"
)

// reserve gives a file its length and all of its blocks. A variable for tests.
var reserve = func(f *os.File, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != unix.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

func diskFree(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func mapFile(f *os.File, size int, write bool) ([]byte, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	mapped.Add(data, f.Name())
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE) // advice: file systems without large folios refuse
	return data, nil
}

func protect(data []byte) error {
	return os.NewSyscallError("mprotect", unix.Mprotect(data, unix.PROT_READ))
}

func unmap(data []byte) error {
	mapped.Remove(data)
	return os.NewSyscallError("munmap", unix.Munmap(data))
}

func fileNumber(st fs.FileInfo) (device, number uint64) {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Dev), s.Ino
	}
	return 0, 0
}

// changeTime is when the file's bytes or its entry last changed, in ns: unlike
// the time of modification nobody sets it back.
func changeTime(st fs.FileInfo) int64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}

// lockTemporary opens and locks a temporary file. It gives nil where another
// process, or another call, has it. The lock ends with the file's last descriptor.
func lockTemporary(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, nil
			}
			return nil, os.NewSyscallError("flock", err)
		}
		// Renamed or removed between opening and locking: it is not ours to fill.
		here, err := f.Stat()
		there, err2 := os.Lstat(path)
		if err == nil && err2 == nil && os.SameFile(here, there) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// removeOrphan removes a temporary file that nobody has locked.
func removeOrphan(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		here, err := f.Stat()
		if there, err2 := os.Lstat(path); err == nil && err2 == nil && os.SameFile(here, there) {
			os.Remove(path)
		}
	}
}

// Dropper gives memory back that mapped source files take while they are packed.
type Dropper struct{ shared [][2]uintptr }

// NewDropper finds the files that are mapped now.
func NewDropper() *Dropper {
	d := &Dropper{}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return d
	}
	for line := range strings.Lines(string(text)) {
		// 7f0000000000-7f0000001000 r--s 00000000 08:01 1234  /path
		if f := strings.Fields(line); len(f) >= 6 && len(f[1]) == 4 && f[1][3] == 's' && strings.HasPrefix(f[5], "/") &&
			!strings.HasPrefix(f[5], "/dev/") {
			from, to, _ := strings.Cut(f[0], "-")
			a, err := parseHex(from)
			b, err2 := parseHex(to)
			if err == nil && err2 == nil {
				d.shared = append(d.shared, [2]uintptr{a, b})
			}
		}
	}
	return d
}

func parseHex(s string) (n uintptr, err error) {
	if len(s) == 0 || len(s) > 16 {
		return 0, errors.New("no address")
	}
	for _, c := range []byte(s) {
		v := strings.IndexByte("0123456789abcdef", c)
		if v < 0 {
			return 0, errors.New("no address")
		}
		n = n<<4 | uintptr(v)
	}
	return n, nil
}

// Drop unmaps the pages of b for now, if they are those of a mapped file, where
// they can be read again: of other memory the same call would lose the contents.
func (d *Dropper) Drop(b []byte) {
	if len(b) == 0 {
		return
	}
	size := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from, to := (at+size-1)/size*size, (at+uintptr(len(b)))/size*size
	if from >= to {
		return
	}
	for _, m := range d.shared {
		if m[0] <= from && to <= m[1] {
			_ = unix.Madvise(b[from-at:to-at], unix.MADV_DONTNEED) // saves memory, nothing else
			return
		}
	}
}
