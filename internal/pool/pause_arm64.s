//go:build !noasm

#include "textflag.h"

// func pause(n uint32)
TEXT ·pause(SB), NOSPLIT, $0-4
	MOVWU n+0(FP), R0

again:
	// ISB waits some tens of cycles on every core; YIELD is a no-op on most.
	ISB  $15
	SUBW $1, R0
	CBNZW R0, again
	RET
