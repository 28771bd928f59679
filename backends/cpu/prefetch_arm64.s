//go:build !noasm

#include "textflag.h"

// func prefetch(p unsafe.Pointer, lines, apart int)
TEXT ·prefetch(SB), NOSPLIT|NOFRAME, $0-24
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
	MOVD apart+16(FP), R2
	ADD  R2, R0, R3
	ADD  R2, R3, R4
	ADD  R2, R4, R5
next:
	SUBS $1, R1
	BLT  done
	PRFM (R0), PLDL2KEEP
	PRFM (R3), PLDL2KEEP
	PRFM (R4), PLDL2KEEP
	PRFM (R5), PLDL2KEEP
	ADD  $64, R0
	ADD  $64, R3
	ADD  $64, R4
	ADD  $64, R5
	B    next
done:
	RET
