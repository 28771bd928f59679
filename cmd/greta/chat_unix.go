//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspend stops this program and those that it was started with, until the shell goes on with them.
func suspend() {
	on := make(chan os.Signal, 1)
	signal.Notify(on, syscall.SIGCONT)
	defer signal.Stop(on)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-on:
	case <-time.After(200 * time.Millisecond): // nobody is there who could go on with it, so that it did not stop
	}
}

// drawable lets a terminal take marks that steer it, until plain; here each does.
func drawable(*os.File) (plain func()) { return func() {} }
