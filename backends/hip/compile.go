package hip

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// compiler turns programs into code for one target, by the cache or by the
// provider's run-time compiler. Its methods may be called at once by several goroutines.
type compiler struct {
	driver *driver
	target target
	cache  Cache
	built  string         // folder of code that was compiled ahead of time, "" without
	worker *compileWorker // compiles in children; nil: in this process
	note   func(program)  // of a null device: is told of a program, one at a time, instead of compiling it

	mu       sync.Mutex
	compiled int                       // programs that were neither built ahead nor in the cache
	pending  map[program]chan struct{} // that are being compiled; closed when they are in the cache
	foreign  map[program]foreign       // that users wrote
}

// newCompiler checks that the target is one that the compiler knows: AMD's
// aborts the process for any other.
func newCompiler(d *driver, arch string, cache Cache, built string) (*compiler, error) {
	c := &compiler{driver: d, target: target{vendor: d.vendor(), arch: arch}, cache: cache, built: built}
	if p, ok := d.provider.(*nullDriver); ok {
		c.note = p.note
		return c, nil
	}
	if info, err := os.Stat(built); built != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("kernels built ahead of time: %s is no folder", built)
	}
	if known := d.targets(); known != nil && !slices.Contains(known, arch) {
		return nil, fmt.Errorf("the compiler of %s does not know %s (it knows %s): install a newer ROCm",
			strings.Join(d.files(), ", "), arch, strings.Join(known, ", "))
	}
	if !d.has(fnRtcCompile) {
		if built != "" {
			return c, nil
		}
		return nil, fmt.Errorf("%s was found, but no run-time compiler (%s)", strings.Join(d.files(), ", "),
			d.vendor().symbol(fnRtcCompile))
	}
	out := newOuts()
	defer out.keep()
	if err := d.check(fnRtcVersion, "", d.invokeChecked(fnRtcVersion, []uintptr{out.at(0), out.at(1)})); err != nil {
		return nil, err
	}
	c.target.version = fmt.Sprintf("%s %d.%d", d.vendor(), int32(out.v[0]), int32(out.v[1]))
	if name := d.compilerFile(); name != "" {
		c.target.version += " (" + name + ")"
	}
	return c, nil
}

// compilerFile names the file that the compiler comes from, which has its
// version in full: AMD's says 9.0 of itself for years.
func (d *driver) compilerFile() string {
	files := d.files()
	if len(files) == 0 {
		return ""
	}
	// The runtime comes first, then the compiler, where it is a library of its own.
	path := files[min(1, len(files)-1)]
	if d.vendor() == amd {
		path = files[0] // both are of one release
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return filepath.Base(path)
}

// code gives a program's code.
func (c *compiler) code(p program) ([]byte, error) {
	if c.note != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.note(p)
		return []byte{0}, nil
	}
	source, image, err := c.text(p)
	if err != nil || image != nil {
		return image, err
	}
	if code, err := loadBuilt(c.built, p, c.target, source); code != nil || err != nil {
		return code, err
	}
	defer c.alone(p)()
	key := c.target.key(source)
	if code := c.cache.load(key); code != nil {
		return code, nil
	}
	code, err := c.compile(p, source)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.compiled++
	c.mu.Unlock()
	c.cache.store(key, p, code) // a cache that cannot be written costs time, nothing else
	return code, nil
}

// alone waits until nobody else compiles a program; what it gives is called at the end.
func (c *compiler) alone(p program) (done func()) {
	for {
		c.mu.Lock()
		other := c.pending[p]
		if other == nil {
			if c.pending == nil {
				c.pending = map[program]chan struct{}{}
			}
			mine := make(chan struct{})
			c.pending[p] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.pending, p)
				close(mine)
			}
		}
		c.mu.Unlock()
		<-other
	}
}

// compile runs the run-time compiler, in a child where it may abort.
func (c *compiler) compile(p program, source string) ([]byte, error) {
	o := order{string(p), []byte(source), c.target.options()}
	if c.worker != nil {
		return c.worker.compile(o)
	}
	return c.driver.compile(o)
}

// compile runs the run-time compiler in this process.
func (d *driver) compile(o order) (code []byte, err error) {
	what := o.Program
	var pin runtime.Pinner
	defer pin.Unpin()
	text := address(&pin, append(o.Source, 0))
	name := address(&pin, append([]byte(strings.Fields(what)[0]), 0))
	out := newOuts()
	defer out.keep()
	if err := d.call(fnRtcCreate, what, out.at(0), text, name, 0, 0, 0); err != nil {
		return nil, err
	}
	handle := uintptr(out.v[0])
	defer func() {
		out.v[0] = uint64(handle)
		if e := d.call(fnRtcDestroy, what, out.at(0)); err == nil && e != nil {
			code, err = nil, e
		}
	}()
	var options []uintptr
	for _, text := range o.Options {
		options = append(options, address(&pin, append([]byte(text), 0)))
	}
	pin.Pin(&options[0])
	failed := d.call(fnRtcCompile, what, handle, uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])))
	if failed != nil {
		if log := d.log(handle, out); log != "" {
			return nil, fmt.Errorf("%w:\n%s", failed, log)
		}
		return nil, failed
	}
	if err := d.call(fnRtcCodeSize, what, handle, out.at(1)); err != nil {
		return nil, err
	}
	if n := out.v[1]; n == 0 || n > 1<<28 {
		return nil, fmt.Errorf("%s: the compiler gave code of %d bytes", what, n)
	}
	code = make([]byte, out.v[1])
	if err := d.call(fnRtcCode, what, handle, address(&pin, code)); err != nil {
		return nil, err
	}
	return code, nil
}

// log is what the compiler said, at most 4 KiB of it.
func (d *driver) log(handle uintptr, out *outs) string {
	if d.call(fnRtcLogSize, "", handle, out.at(1)) != nil || out.v[1] < 2 || out.v[1] > 1<<24 {
		return ""
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	b := make([]byte, out.v[1])
	if d.call(fnRtcLog, "", handle, address(&pin, b)) != nil {
		return ""
	}
	text := strings.TrimRight(string(b), "\x00\n")
	return text[:min(len(text), 4096)]
}

// address pins a slice's bytes and says where they are.
func address(pin *runtime.Pinner, b []byte) uintptr {
	p := unsafe.SliceData(b)
	pin.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

// all compiles several programs at once and calls done for each as it is
// ready, one at a time; the first error ends it.
func (c *compiler) all(programs []program, done func(program, []byte) error) error {
	type result struct {
		p    program
		code []byte
		err  error
	}
	jobs, results := make(chan program, len(programs)), make(chan result, len(programs))
	for _, p := range programs {
		jobs <- p
	}
	close(jobs)
	for range min(len(programs), runtime.GOMAXPROCS(0)) {
		go func() {
			for p := range jobs {
				code, err := c.code(p)
				results <- result{p, code, err}
			}
		}()
	}
	if c.worker != nil {
		defer c.worker.rest()
	}
	var first error
	for range programs {
		r := <-results
		if r.err == nil && first == nil {
			r.err = done(r.p, r.code)
		}
		if first == nil {
			first = r.err
		}
	}
	return first
}
