// Package pace says how long a program of several steps may take.
package pace

import "time"

// Program is how long one may take, so that tokens keep coming smoothly, and turns. Tests on a machine that others slow
// down raise it before they make sessions.
var Program = 32 * time.Millisecond
