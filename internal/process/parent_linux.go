package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel send SIGKILL when the parent process terminates (prctl(2), PR_SET_PDEATHSIG). It returns an error
// if the parent has terminated before, because the kernel would send no signal.
func dieWithParent() error {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("requesting the signal for the end of the parent process: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent process has terminated")
	}
	return nil
}
