// Command spvpack packs modules of SPIR-V for an archive (see backends/vulkan/spvpack), or unpacks one:
//
//	spvpack pack FROM TO     FROM/GROUP/NAME.spv to TO/GROUP, for zstd to compress, and TO/modules
//	spvpack unpack FROM TO   an archive to TO/GROUP/NAME.spv
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "spvpack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "pack" {
		return pack(args[1], args[2])
	}
	if len(args) == 3 && args[0] == "unpack" {
		return unpack(args[1], args[2])
	}
	return errors.New("usage: spvpack pack|unpack FROM TO")
}

func pack(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*", "*.spv"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no GROUP/NAME.spv", from)
	}
	slices.Sort(files)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	groups := map[string][]byte{}
	var index strings.Builder
	for _, f := range files {
		code, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		words, err := spvpack.Plain(code)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		group, name := filepath.Base(filepath.Dir(f)), strings.TrimSuffix(filepath.Base(f), ".spv")
		packed, line, err := spvpack.Line(group, name, words)
		if err != nil {
			return err
		}
		groups[group] = append(groups[group], packed...)
		index.WriteString(line)
	}
	for group, packed := range groups {
		if err := os.WriteFile(filepath.Join(to, group), packed, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, spvpack.Index), []byte(index.String()), 0o644)
}

func unpack(from, to string) error {
	a, err := spvpack.OpenArchive(os.DirFS(from))
	if err != nil {
		return err
	}
	for _, name := range a.Names() {
		words, err := a.Words(name)
		if err != nil {
			return err
		}
		dir := filepath.Join(to, a.Group(name))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".spv"), spvpack.Bytes(words), 0o644); err != nil {
			return err
		}
	}
	return nil
}
