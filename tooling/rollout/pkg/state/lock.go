package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// LockedError means that another rollout has the lock of a target.
type LockedError struct {
	Target string
	// Holder describes the process that took the lock last.
	Holder string
}

// Error names the target and the holder.
func (e *LockedError) Error() string {
	return fmt.Sprintf("another rollout of %s runs (%s); wait until it has ended", e.Target, e.Holder)
}

// Lock is the lock of a target. The kernel releases it when the process ends, in whatever way.
type Lock struct{ file *os.File }

// Acquire takes the lock of a target, for itself or shared with others that take it shared. It does not wait: it returns a LockedError
// if another process has the lock.
func Acquire(dir string, target layer.Target, shared bool) (*Lock, error) {
	folder := filepath.Join(dir, filepath.FromSlash(target.String()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("locking %s: %w", target, err)
	}
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", target, err)
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder := make([]byte, 256)
		n, _ := f.Read(holder)
		_ = f.Close()
		return nil, &LockedError{target.String(), strings.TrimSpace(string(holder[:n]))}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", target, err), f.Close())
	}
	host, _ := os.Hostname()
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
	}
	return &Lock{f}, nil
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.file.Close() }
