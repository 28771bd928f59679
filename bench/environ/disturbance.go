package environ

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// Watch tells what disturbs a measurement: other programs on the processors, a quota, processors that this process may
// not use. Linux only; elsewhere nothing is found.
type Watch struct {
	need float64 // processors that the measurement wants for itself
	root string  // of the file system
	cpus float64 // of the machine, that are on
	may  float64 // that this process may run on

	at   time.Time
	busy float64 // seconds that all processors were busy since the machine started
	own  float64 // of them this process and those that it waited for
	last map[string]float64

	fixed bool // last is what it always says
}

// FixedWatch always tells the same, for tests.
func FixedWatch(metrics map[string]float64) *Watch { return &Watch{fixed: true, last: metrics} }

// window is the shortest time over which the load is told: the system counts in hundredths of a second.
const window = 300 * time.Millisecond

// NewWatch begins to watch. A measurement on the host's processors wants one for each of its threads; one on another
// device wants one.
func NewWatch(threads int, host bool) *Watch {
	need := 1.0
	if host {
		need = float64(max(threads, 1))
	}
	return newWatch("/", need)
}

func newWatch(root string, need float64) *Watch {
	w := &Watch{root: root, need: need, cpus: float64(onlineCPUs(root)), may: float64(affinity())}
	w.at, w.busy, w.own = time.Now(), w.busySeconds(), cpuSeconds()
	return w
}

// Metrics gives what disturbed the measurement since it was last asked, under the names that record.Result.Disturbed
// reads; nil where nothing did, or of a nil Watch.
func (w *Watch) Metrics() map[string]float64 {
	if w != nil && w.fixed {
		return w.last
	}
	if w == nil || runtime.GOOS != "linux" || w.cpus == 0 {
		return nil
	}
	if since := time.Since(w.at); since >= window || w.last == nil {
		busy, own := w.busySeconds(), cpuSeconds()
		w.last = w.flags((busy-w.busy-(own-w.own))/max(since.Seconds(), 1e-3), since)
		w.at, w.busy, w.own = time.Now(), busy, own
	}
	if len(w.last) == 0 {
		return nil
	}
	return w.last
}

// flags judges what others used of the processors, as so many of them over some time.
func (w *Watch) flags(others float64, over time.Duration) map[string]float64 {
	m := map[string]float64{}
	// What is free beside the measurement may be used; a tenth of a processor is the system's own work.
	if others > w.cpus-w.need+max(0.1*w.need, 0.15) && over >= window {
		m[record.OthersCPUs] = math.Round(others*100) / 100
	}
	if q := quota(w.root); q > 0 && q < min(w.need, w.cpus) {
		m[record.QuotaCPUs] = q
	}
	if w.may > 0 && w.may < w.cpus {
		m[record.AffinityCPUs] = w.may
	}
	return m
}

// busySeconds is the time that all processors were not idle; what a host of virtual machines took from this one counts.
func (w *Watch) busySeconds() float64 {
	line, _, _ := strings.Cut(readFile(w.root, "proc/stat"), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	sum := 0.0
	for i, s := range f {
		if n, err := strconv.ParseFloat(s, 64); err == nil && i != 4 && i != 5 && i < 9 {
			sum += n
		}
	}
	return sum / 100 // USER_HZ is 100 wherever Linux runs
}

// onlineCPUs counts the processors that are on: "0-3,8".
func onlineCPUs(root string) (n int) {
	for part := range strings.SplitSeq(readFile(root, "sys/devices/system/cpu/online"), ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			return 0
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(to); err != nil {
				return 0
			}
		}
		n += b - a + 1
	}
	return n
}

// quota is how many processors' time a group of processes may use, 0 where it is not bounded: cpu.max of cgroup 2,
// cpu.cfs_quota_us of cgroup 1, the least of the process's groups up to the root.
func quota(root string) float64 {
	least := 0.0
	bound := func(q float64) {
		if q > 0 && (least == 0 || q < least) {
			least = q
		}
	}
	for line := range strings.Lines(readFile(root, "proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			if parts[1] == "" {
				max, period, _ := strings.Cut(readFile(root, "sys/fs/cgroup", dir, "cpu.max"), " ")
				bound(ratio(max, period))
			}
			for _, c := range strings.Split(parts[1], ",") {
				if c == "cpu" {
					at := filepath.Join(root, "sys/fs/cgroup", mounted(root, parts[1]), dir)
					bound(ratio(readFile(at, "cpu.cfs_quota_us"), readFile(at, "cpu.cfs_period_us")))
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// mounted is the folder of a hierarchy of cgroup 1: "cpu,cpuacct", or one of its names.
func mounted(root, controllers string) string {
	for _, name := range append([]string{controllers}, strings.Split(controllers, ",")...) {
		if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup", name)); err == nil {
			return name
		}
	}
	return controllers
}

func ratio(a, b string) float64 {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if err1 != nil || err2 != nil || y <= 0 {
		return 0
	}
	return x / y
}
