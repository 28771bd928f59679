package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// linkBase is where the block is linked; only distances matter.
const linkBase = 0x10000

// linkScript puts code, then constants, into one section.
var linkScript = fmt.Sprintf(`SECTIONS {
	. = %#x;
	.blob : ALIGN(64) { *(.text .text.*) . = ALIGN(64); *(.rodata .rodata.*) . = ALIGN(64); }
	/DISCARD/ : { *(.comment) *(.note*) *(.eh_frame*) *(.llvm*) *(.ARM*) }
}`, linkBase)

// block is one C file's code and constants, as bytes.
type block struct {
	data    []byte
	codeEnd int
	funcs   []function    // by offset
	ins     []instruction // by offset, covering [0, codeEnd)
}

type function struct {
	name   string
	offset int
}

type instruction struct {
	offset int
	text   string
}

// readBlock reads the linked file and its disassembly and checks that the
// block can live inside a Go function.
func readBlock(path string, disassembly []byte) (*block, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := &block{}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 {
			continue
		}
		if s.Name != ".blob" || s.Flags&elf.SHF_WRITE != 0 {
			return nil, fmt.Errorf("section %s of %d bytes: kernels may have code and constants only, no variables", s.Name,
				s.Size)
		}
		if b.data, err = s.Data(); err != nil {
			return nil, err
		}
	}
	syms, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		off := int(s.Value - linkBase)
		if off < 0 || off+int(s.Size) > len(b.data) {
			return nil, fmt.Errorf("function %s lies outside the block", s.Name)
		}
		b.codeEnd = max(b.codeEnd, off+int(s.Size))
		if elf.ST_BIND(s.Info) == elf.STB_GLOBAL {
			b.funcs = append(b.funcs, function{s.Name, off})
		}
	}
	if len(b.funcs) == 0 {
		return nil, errors.New("no functions")
	}
	slices.SortFunc(b.funcs, func(x, y function) int { return x.offset - y.offset })
	return b, b.readInstructions(string(disassembly))
}

// readInstructions takes instruction boundaries and texts from lines such as
//
//	10004:      	vmovups	zmm0, zmmword ptr [rdi]
func (b *block) readInstructions(text string) error {
	for line := range strings.Lines(text) {
		addr, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || rest == "" {
			continue
		}
		at, err := strconv.ParseUint(addr, 16, 64)
		if err != nil || at < linkBase {
			continue
		}
		off := int(at - linkBase)
		if off >= b.codeEnd {
			break
		}
		if n := len(b.ins); n > 0 && off <= b.ins[n-1].offset {
			return fmt.Errorf("disassembly goes back at %#x", at)
		}
		t := strings.Join(strings.Fields(rest), " ")
		switch op, _, _ := strings.Cut(t, " "); op {
		case "call", "bl", "blr", "syscall", "svc":
			return fmt.Errorf("%q: a kernel may not call", t)
		}
		b.ins = append(b.ins, instruction{off, t})
	}
	if len(b.ins) == 0 || b.ins[0].offset != 0 {
		return errors.New("no disassembly of the block's first instruction")
	}
	return nil
}
