package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/internal/errlist"
)

// descriptors are those of files that the other side sends by a socket beside the pipe, each with a number. A request
// that names the number takes it; what no request has named is closed after a while, and there are not many.
type descriptors struct {
	conn net.Conn
	raw  syscall.RawConn

	mu    sync.Mutex
	sent  map[uint64]*arrival
	ended bool // nothing comes any more
}

// arrival is a descriptor that nobody has taken yet.
type arrival struct {
	fd   int
	late *time.Timer
}

const mostArrivals = 1024

// takeDescriptors takes what the other side sends by the socket that has the number fd among this process's open files.
// The socket is closed with what it gives.
func takeDescriptors(fd int) (*descriptors, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err == nil && domain != unix.AF_UNIX {
		err = errors.New("it is a socket of another family")
	}
	if err == nil {
		var kind int
		if kind, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind != unix.SOCK_SEQPACKET {
			err = errors.New("it keeps no messages apart")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the open file %d is no Unix socket of the type SOCK_SEQPACKET: %w", fd, err)
	}
	file := os.NewFile(uintptr(fd), "descriptors")
	conn, err := net.FileConn(file)
	if err = errlist.Join(err, file.Close()); err != nil {
		return nil, err
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, errlist.Join(err, conn.Close())
	}
	d := &descriptors{conn: conn, raw: raw, sent: map[uint64]*arrival{}}
	go func() {
		_ = raw.Read(func(fd uintptr) bool { // its error is the end
			d.mu.Lock()
			defer d.mu.Unlock()
			d.receive(int(fd))
			return d.ended
		})
	}()
	return d, nil
}

// receive takes all messages that are there. d.mu is held.
func (d *descriptors) receive(fd int) {
	for !d.ended {
		var number [9]byte
		rights := make([]byte, unix.CmsgSpace(4*8))
		n, m, _, _, err := unix.Recvmsg(fd, number[:], rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n == 0:
			d.ended = true
			return
		}
		var all []int
		messages, _ := unix.ParseSocketControlMessage(rights[:m])
		for i := range messages {
			some, _ := unix.ParseUnixRights(&messages[i])
			all = append(all, some...)
		}
		if n == 8 && len(all) == 1 && len(d.sent) < mostArrivals {
			d.keep(binary.LittleEndian.Uint64(number[:]), all[0])
			continue
		}
		for _, fd := range all { // a request that names it says that it is not there
			_ = unix.Close(fd)
		}
	}
}

// keep holds a descriptor for the request that names it, which is on its way.
func (d *descriptors) keep(number uint64, fd int) {
	d.drop(number)
	a := &arrival{fd: fd}
	a.late = time.AfterFunc(arrivalsLast, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.sent[number] == a {
			d.drop(number)
		}
	})
	d.sent[number] = a
}

// drop closes a descriptor that nobody has taken. d.mu is held.
func (d *descriptors) drop(number uint64) {
	if a := d.sent[number]; a != nil {
		a.late.Stop()
		_ = unix.Close(a.fd)
		delete(d.sent, number)
	}
}

// take gives a descriptor to a request, which closes it; false: none of this number was sent.
func (d *descriptors) take(number uint64) (int, bool) {
	if d == nil {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent[number] == nil { // it may have come and not been seen yet
		_ = d.raw.Control(func(fd uintptr) { d.receive(int(fd)) })
	}
	a := d.sent[number]
	if a == nil {
		return 0, false
	}
	a.late.Stop()
	delete(d.sent, number)
	return a.fd, true
}

// close ends it, and closes what nobody has taken.
func (d *descriptors) close() {
	if d == nil {
		return
	}
	_ = d.conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for number := range d.sent {
		d.drop(number)
	}
}

func closeDescriptor(fd int) { _ = unix.Close(fd) }
