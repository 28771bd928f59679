//go:build !noasm

#include "textflag.h"

// func prefetch(p unsafe.Pointer, lines, apart int)
TEXT ·prefetch(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	MOVQ apart+16(FP), DX
	LEAQ (DX)(DX*2), BX
next:
	SUBQ $1, CX
	JLT  done
	PREFETCHT1 (AX)
	PREFETCHT1 (AX)(DX*1)
	PREFETCHT1 (AX)(DX*2)
	PREFETCHT1 (AX)(BX*1)
	ADDQ $64, AX
	JMP  next
done:
	RET
