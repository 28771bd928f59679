//go:build !noasm

#include "textflag.h"

// func prefetch(b []byte)
TEXT ·prefetch(SB), NOSPLIT|NOFRAME, $0-24
	MOVD b_base+0(FP), R0
	MOVD b_len+8(FP), R1
next:
	CMP  $0, R1
	BLE  done
	PRFM (R0), PLDL2KEEP
	ADD  $64, R0
	SUB  $64, R1
	B    next
done:
	RET
