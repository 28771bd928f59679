package hip

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// Builder compiles kernels ahead of time, for an architecture that need not be
// here: programs are captured on its device, a null device, and what they need
// is compiled to a folder, which Options.Built names later.
type Builder struct {
	dev  *Device
	mu   sync.Mutex
	need map[program]bool
}

// NewBuilder makes a builder for an architecture, "gfx942" or "sm_90". units are
// the compute units of the card, by which work is divided; 0: those of the best
// known card of the architecture.
func NewBuilder(arch string, units int) (*Builder, error) {
	b := &Builder{need: map[program]bool{}}
	var err error
	b.dev, err = openNull(arch, units, func(p program) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.need[p] = true
	})
	return b, err
}

// Device takes programs and runs nothing.
func (b *Builder) Device() backends.Device { return b.dev }

// Try compiles an empty kernel for the builder's architecture: its error is the compiler's
// about an architecture that it does not know.
func (b *Builder) Try(ctx context.Context, t *Tool) error {
	_, err := t.compile(ctx, b.dev.c.target, "an empty kernel", `extern "C" __attribute__((global)) void nothing() {}`)
	return err
}

// Programs is how many programs are known to be needed.
func (b *Builder) Programs() int { return len(b.need) }

// Close ends the builder. What was captured on its device must be closed before.
func (b *Builder) Close() error { return b.dev.Close() }

// Tool is what compiles ahead of time.
type Tool struct {
	name    string // "clang version 19…", "hiprtc …"
	compile func(ctx context.Context, t target, p program, source string) ([]byte, error)
	close   func()
}

func (t *Tool) String() string { return t.name }

// Close ends what the tool has started.
func (t *Tool) Close() { t.close() }

// FindTool looks for a compiler for an architecture: with is "rtc", the run-time
// compiler of the architecture's platform, "clang", or "auto", the first of the
// two that is there. compiler is as in Options.
func FindTool(with, arch string, compiler []string) (*Tool, error) {
	switch with {
	case "rtc":
		return rtcTool(arch, compiler)
	case "clang":
		return clangTool()
	case "auto":
		t, err := rtcTool(arch, compiler)
		if err == nil {
			return t, nil
		}
		t, err2 := clangTool()
		if err2 == nil {
			return t, nil
		}
		return nil, errlist.Join(err, err2)
	}
	return nil, fmt.Errorf("%q is no way to compile: rtc, clang or auto is expected", with)
}

// rtcTool is a run-time compiler without a device.
func rtcTool(arch string, command []string) (*Tool, error) {
	who, err := vendorOf(arch)
	if err != nil {
		return nil, err
	}
	p, err := load(who)
	if err != nil {
		return nil, err
	}
	c, err := newCompiler(&driver{p}, arch, Cache{}, "")
	if err != nil {
		return nil, err
	}
	if len(command) > 0 && who == amd {
		c.worker = &compileWorker{command: command, limit: compileLimit}
	}
	t := &Tool{name: "the run-time compiler " + c.target.version, close: func() {}}
	if c.worker != nil {
		t.close = c.worker.rest
	}
	t.compile = func(_ context.Context, _ target, p program, source string) ([]byte, error) {
		return c.compile(p, source)
	}
	return t, nil
}

// clangs are names of a clang that may know GPUs, the best known first.
var clangs = []string{"clang-19", "clang-20", "clang-21", "/opt/rocm/llvm/bin/clang", "clang", "clang-18"}

// clangTool finds clang: $GRETA_CLANG, or one of the usual names.
func clangTool() (*Tool, error) {
	names := clangs
	if own := os.Getenv("GRETA_CLANG"); own != "" {
		names = []string{own}
	}
	for _, n := range names {
		path, err := exec.LookPath(n)
		if err != nil {
			continue
		}
		text, err := exec.Command(path, "--version").Output()
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return &Tool{name: strings.TrimSpace(line), close: func() {},
			compile: func(ctx context.Context, t target, p program, source string) ([]byte, error) {
				return clangCompile(ctx, path, t, p, source)
			}}, nil
	}
	return nil, fmt.Errorf("no clang was found (%s; $GRETA_CLANG names another)", strings.Join(names, ", "))
}

// clangCompile gives a code object for AMD, PTX for NVIDIA.
func clangCompile(ctx context.Context, clang string, t target, p program, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "greta-kernel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "kernel.hip"), filepath.Join(dir, "kernel.co")
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		return nil, err
	}
	args := []string{"-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"}
	args = append(args, t.options()...)
	if t.vendor == nvidia {
		args = []string{"-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=" + cudaArch(t.arch), "--cuda-feature=+ptx80",
			"-nocudainc", "-nocudalib", "-std=c++17", "-O3", "-S"}
	}
	text, err := exec.CommandContext(ctx, clang, append(args, "-o", out, in)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s for %s: %w\n%s", p, t.arch, err, text[:min(len(text), 4096)])
	}
	code, err := os.ReadFile(out)
	if err == nil && t.vendor == nvidia {
		code = append(code, 0) // the driver takes text that ends so
	}
	return code, err
}

// Built is what Build did.
type Built struct {
	Compiled int   // programs
	Kept     int   // that were there already
	Bytes    int64 // of all files
}

// Build compiles what is needed to a folder, on all cores; what is there and
// whole is left. done is told of each program.
func (b *Builder) Build(ctx context.Context, t *Tool, dir string, done func(n, of int, what string)) (Built, error) {
	var sum Built
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return sum, err
	}
	programs := slices.SortedFunc(maps.Keys(b.need), func(p, q program) int { return cmp.Compare(p, q) })
	target := b.dev.c.target
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	finished := 0
	one := func(p program) error {
		source, err := p.source()
		if err != nil {
			return err
		}
		code, err := loadBuilt(dir, p, target, source)
		kept := err == nil && code != nil
		if !kept {
			if code, err = t.compile(ctx, target, p, source); err != nil {
				return err
			}
			if err := storeBuilt(dir, p, target, source, code); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		finished++
		sum.Bytes += int64(len(code))
		if kept {
			sum.Kept++
		} else {
			sum.Compiled++
		}
		done(finished, len(programs), string(p))
		return nil
	}
	queue := make(chan program)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range queue {
				if ctx.Err() == nil {
					if err := one(p); err != nil {
						stop(err)
					}
				}
			}
		})
	}
	for _, p := range programs {
		queue <- p
	}
	close(queue)
	wg.Wait()
	return sum, context.Cause(ctx)
}

// WithPaths calls f for each way in which the device's paths may be settled at
// run time: as it opens, with each path of half precision and each that users opt into, and with none.
func (b *Builder) WithPaths(f func() error) error {
	paths := b.dev.Paths()
	set := func(on func(backends.Path) bool) error {
		for _, p := range paths {
			if err := b.dev.SetPath(p.Name, on(p)); err != nil {
				return err
			}
		}
		return f()
	}
	if err := set(backends.Path.Exact); err != nil || len(paths) == 0 {
		return err
	}
	for _, other := range paths {
		if !other.Exact() {
			if err := set(func(p backends.Path) bool { return p.Exact() || p.Name == other.Name }); err != nil {
				return err
			}
		}
	}
	return set(func(backends.Path) bool { return false })
}
