package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent asks the kernel for SIGKILL when the parent is gone (prctl(2), PR_SET_PDEATHSIG). A parent that was
// already gone would never trigger it, so that case is looked for afterwards.
func dieWithParent() error {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to die with the parent process: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent process is gone already")
	}
	return nil
}
