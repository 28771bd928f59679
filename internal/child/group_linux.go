package child

import (
	"os/exec"
	"syscall"
)

// isolate gives the child a group of its own, which Ctrl-C does not reach and
// which can be killed whole, and ties its life to the parent's.
func isolate(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(c *exec.Cmd) {
	if c.Process != nil {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
}
