// Package environ reads where a benchmark runs: machine, device, driver, source,
// and clocks, watts and degrees where the system lets them be read.
package environ

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/record"
)

// Gather reads the environment of a device. version is that of greta. What cannot
// be read is left empty; nothing here is an error. It takes some milliseconds, so
// it is called before measuring, not in it.
func Gather(version string, dev backends.Device) record.Env {
	i := dev.Info()
	e := record.Env{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: processor(), Cores: runtime.GOMAXPROCS(0),
		Version: version, Commit: Commit(), Go: runtime.Version(),
		Backend: i.Backend, Device: i.Name, DeviceID: Location(dev), Level: i.Level, Driver: i.Driver, Threads: i.Threads,
		Kernels: CodeHash(dev), Readings: map[string]string{},
	}
	e.Host, _ = os.Hostname()
	if onHost(i.Backend) {
		readCPU(e.Readings)
	} else if !readNVML(e.DeviceID, i.Name, e.Readings) {
		readAMD(sysRoot, e.DeviceID, e.Readings)
	}
	return e
}

func onHost(backend string) bool { return backend == "cpu" || backend == "ref" }

// Location is a device's place in the machine, "" where it does not know it.
func Location(dev backends.Device) string {
	if l, ok := dev.(backends.Located); ok {
		return l.Location()
	}
	return ""
}

// LockKey names the device for guard.Lock: all backends that reach the same
// hardware give the same. GPUs that do not say where they are share one.
func LockKey(dev backends.Device) string {
	if at := Location(dev); at != "" {
		return "gpu-" + at
	}
	if onHost(dev.Info().Backend) {
		return "cpu"
	}
	return "gpu"
}

// CodeHash identifies the device's kernels: by their sources where it knows them, as
// all but the reference do, else by this program's file.
func CodeHash(dev backends.Device) string {
	if h := backends.CodeHash(dev, nil, ""); h != "" {
		return h
	}
	return ProgramHash() // which reads the whole file
}

// ProgramHash identifies this program by its file: "program-" and twelve
// hexadecimal digits of its SHA-256, or "" where it cannot be read.
var ProgramHash = sync.OnceValue(func() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return "program-" + hex.EncodeToString(h.Sum(nil)[:6])
})

// stamp is the commit of a build whose maker knows it better than Go does: -ldflags "-X
// github.com/greta-project/greta/bench/environ.stamp=HASH". Go notes none in a git worktree, nor with -buildvcs=false.
var stamp string

// module is the path of greta's module.
var module = strings.TrimSuffix(reflect.TypeFor[Watch]().PkgPath(), "/bench/environ")

// Commit is that of greta's source, with "+dirty" where it was changed: the stamp, or what Go
// noted at the build, or under go run and go test, which note nothing, what git says of
// the source in the working folder. "" where neither knows.
var Commit = sync.OnceValue(func() string {
	if stamp != "" {
		return stamp
	}
	commit, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+dirty"
			}
		}
	}
	if commit != "" {
		return commit + dirty
	}
	// A program that was built elsewhere need not come from the source that it runs in.
	path, err := os.Executable()
	dir := SourceDir()
	if err != nil || dir == "" || !strings.Contains(path, "go-build") {
		return ""
	}
	return gitCommit(dir)
})

// SourceDir is the folder of greta's source that the working folder is in, "" if it
// is in none.
func SourceDir() string {
	dir, err := os.Getwd()
	for err == nil {
		data, e := os.ReadFile(filepath.Join(dir, "go.mod"))
		if e == nil {
			if line, _, _ := strings.Cut(string(data), "\n"); strings.TrimSpace(line) == "module "+module {
				return dir
			}
			return ""
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
	return ""
}

// gitCommit asks git for a folder's commit, and whether tracked files differ from it.
func gitCommit(dir string) string {
	head, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	commit := string(bytes.TrimSpace(head))
	changed, err := exec.Command("git", "-C", dir, "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(bytes.TrimSpace(changed)) > 0 {
		commit += "+dirty"
	}
	return commit
}

// sysRoot is where Linux shows devices.
const sysRoot = "/sys"

// readFile gives a small file's text without the space around it, "" if there is none.
func readFile(parts ...string) string {
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// set notes a reading unless it is empty.
func set(to map[string]string, name, value string) {
	if value != "" {
		to[name] = value
	}
}
