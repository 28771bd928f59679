// Command c2goasm translates kernels written in C with intrinsics into Go
// assembler, so that greta builds without a C compiler and without cgo.
//
//	go run ./tools/c2goasm -all     write every generated file
//	go run ./tools/c2goasm -check   fail where a committed file differs
//
// The C sources are csrc/cpu/*.c. Each is compiled once per level (see
// build.go), linked into one position-independent block of code and constants,
// and written as one TEXT symbol; each kernel becomes a Go-callable wrapper
// that moves its arguments into C's registers and calls into the block. The
// kernels' names and signatures come from the fields of the struct type
// `kernels` in backends/cpu/simd/kernels.go, tagged `c:"name"`; a table of
// that type is generated for each level.
//
// What the C must obey is checked here: no writable data, no calls (neither to
// libraries nor to each other: everything is inlined), stack frames under
// maxFrame, at most as many arguments as the ABI has registers.
//
// The compiler is part of the output, so it is pinned: clang, lld and
// llvm-objdump of LLVM 19 (Debian: clang-19 lld-19 llvm-19).
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	all := flag.Bool("all", false, "write every generated file")
	check := flag.Bool("check", false, "compare instead of writing; exit 1 where a file differs")
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	if *all == *check || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "c2goasm:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := build(root)
	if err != nil {
		return err
	}
	stale := 0
	for _, f := range files {
		path := filepath.Join(root, packageDir, f.name)
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, f.data) {
			continue
		}
		if check {
			fmt.Fprintf(os.Stderr, "c2goasm: %s/%s is not what its C source gives\n", packageDir, f.name)
			stale++
			continue
		}
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return err
		}
		fmt.Printf("%s/%s: %d KiB\n", packageDir, f.name, len(f.data)>>10)
	}
	if stale > 0 {
		return fmt.Errorf("%d files differ; run: go run ./tools/c2goasm -all", stale)
	}
	return nil
}
