//go:build linux

#include "textflag.h"

// sigbus is the handler of SIGBUS while kernels in assembly run: SI is the
// signal's information, whose third word is the address. A fault in a file of
// the table writes that file's message and ends the program; any other goes to
// the handler that was there.
TEXT ·sigbus(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVQ 16(SI), AX
	LEAQ ·table(SB), R9
	MOVQ ·count(SB), CX

next:
	TESTQ CX, CX
	JZ    chain
	CMPQ  AX, 0(R9)
	JB    skip
	CMPQ  AX, 8(R9)
	JAE   skip
	MOVQ  $1, AX // write
	MOVQ  $2, DI
	MOVQ  16(R9), SI
	MOVQ  24(R9), DX
	SYSCALL
	MOVQ  $231, AX // exit_group
	MOVQ  $1, DI
	SYSCALL

skip:
	ADDQ $32, R9
	DECQ CX
	JMP  next

chain:
	MOVQ ·before(SB), AX
	JMP  AX

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	LEAQ ·sigbus(SB), AX
	MOVQ AX, ret+0(FP)
	RET
