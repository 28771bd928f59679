//go:build !noasm

#include "textflag.h"

// func prefetch(b []byte)
TEXT ·prefetch(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), CX
next:
	CMPQ CX, $0
	JLE  done
	PREFETCHT1 (AX)
	ADDQ $64, AX
	SUBQ $64, CX
	JMP  next
done:
	RET
