package procfs_test

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// TestListeners checks that a socket of this process is found as one of a descendant of its parent, and not as one of its own descendants.
func TestListeners(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	for ancestor, want := range map[int]bool{os.Getppid(): true, os.Getpid(): false} {
		found, err := procfs.Listeners(ancestor)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(found, func(l procfs.Listener) bool { return l.Address.String() == listener.Addr().String() })
		if got != want {
			t.Errorf("found: %v, want %v, in %v", got, want, found)
		}
	}
}
