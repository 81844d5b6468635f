package tofu

import (
	"os/exec"
	"syscall"
)

// interruptWithParent makes the kernel interrupt the command when the thread that starts it ends.
func interruptWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
}
