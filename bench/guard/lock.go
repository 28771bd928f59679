package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/errlist"
)

// Holder is who measures on a device.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d (%s) since %s", h.PID, h.Command, h.Since.Local().Format(time.DateTime))
}

// Held is a device's lock in our hands. The operating system gives it back when
// this process ends, however that happens.
type Held struct{ file *os.File }

// poll is how often a waiting process looks again.
const poll = 100 * time.Millisecond

// LockVariable names another folder of lock files, for a system that has no place which all
// users may write to, and for tests.
const LockVariable = "GRETA_LOCKS"

// LockDir is where lock files lie: one folder for all users of the machine, since they share its
// devices. It is the same whatever TMPDIR says, which differs from user to user: the folder
// for temporary files that POSIX asks for, and %ProgramData% on Windows.
func LockDir() string {
	if dir := os.Getenv(LockVariable); dir != "" {
		return dir
	}
	if runtime.GOOS == "windows" {
		return filepath.Join(cmp.Or(os.Getenv("ProgramData"), os.TempDir()), "greta", "locks")
	}
	return "/tmp/greta-locks"
}

// Lock takes the lock of a device for one who measures, and waits as long as
// another process has it. key names the device and is the same for every backend
// that reaches it, such as its bus address. wait, if not nil, is told once who holds
// the lock. The error of an ended context says who held it.
func Lock(ctx context.Context, key string, wait func(Holder)) (*Held, error) {
	return lockIn(ctx, LockDir(), key, wait)
}

func lockIn(ctx context.Context, dir, key string, wait func(Holder)) (*Held, error) {
	file, err := openLock(dir, key)
	if err != nil {
		return nil, fmt.Errorf("the lock of %s: %w", key, err)
	}
	for told := false; ; {
		taken, err := tryLock(file)
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("the lock of %s: %s: %w", key, file.Name(), err)
		}
		if taken {
			break
		}
		h := holder(file)
		// Who has just taken it may not have written yet.
		if h.PID != 0 && !told && wait != nil {
			wait(h)
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("%s is measured by %s: %w", key, h, ctx.Err())
		case <-time.After(poll):
		}
	}
	h := Holder{PID: os.Getpid(), Command: strings.Join(os.Args, " "), Since: time.Now().UTC().Truncate(time.Second)}
	data, err := json.Marshal(h)
	if err == nil {
		err = errlist.Join(file.Truncate(0), writeAt(file, data))
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("the lock of %s: %w", key, err)
	}
	return &Held{file}, nil
}

func writeAt(f *os.File, data []byte) error {
	_, err := f.WriteAt(data, 0)
	return err
}

// Unlock gives the device to the next. A second call does nothing.
func (h *Held) Unlock() error {
	if h == nil || h.file == nil {
		return nil
	}
	err := errlist.Join(h.file.Truncate(0), unlock(h.file), h.file.Close())
	h.file = nil
	return err
}

// holder reads who has the lock; the zero Holder where that is not written.
func holder(f *os.File) Holder {
	var h Holder
	data := make([]byte, 4096)
	n, _ := f.ReadAt(data, 0)
	if json.Unmarshal(data[:n], &h) != nil {
		return Holder{}
	}
	return h
}

// openLock opens a device's lock file, which is never removed: a process that
// waits for a removed file would wait beside the others.
func openLock(dir, key string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("%w; %s can name another folder, the same for all who measure", err, LockVariable)
	}
	// Every user may put a file there, none may remove another's. That fails for
	// one who does not own the folder, and need not succeed for him.
	os.Chmod(dir, 0o777|os.ModeSticky)
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, key)
	path := filepath.Join(dir, name+".lock")
	// Linux refuses O_CREATE on other users' files in such folders, so first without.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666); err == nil {
			os.Chmod(path, 0o666) // whatever the umask
		}
	}
	return f, err
}
