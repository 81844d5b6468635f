package procfs_test

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// TestListeners checks that a socket of this process is found as one of a descendant of its parent, and not as one of its own descendants.
func TestListeners(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	for ancestor, want := range map[int]bool{os.Getppid(): true, os.Getpid(): false} {
		found := must.Get(procfs.Listeners(ancestor))(t)
		got := slices.ContainsFunc(found, func(l procfs.Listener) bool { return l.Address.String() == listener.Addr().String() })
		if got != want {
			t.Errorf("found: %v, want %v, in %v", got, want, found)
		}
	}
}
