package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// suspend is nothing that Windows knows.
func suspend() {}

// drawable lets a console take marks that steer it, until plain.
func drawable(out *os.File) (plain func()) {
	console := windows.Handle(out.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return func() {}
	}
	_ = windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return func() { _ = windows.SetConsoleMode(console, mode) }
}
