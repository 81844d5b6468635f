package procfs_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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

// TestCPUTimeHasChildren checks that the CPU time of a process has that of its child.
func TestCPUTimeHasChildren(t *testing.T) {
	const child = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $$; read end"
	parent := exec.CommandContext(t.Context(), "sh", "-c", "sh -c '"+child+"'; exit")
	in, out := must.Get(parent.StdinPipe())(t), must.Get(parent.StdoutPipe())(t)
	must.Do(t, parent.Start())
	pid := must.Get(strconv.Atoi(strings.TrimSpace(must.Get(bufio.NewReader(out).ReadString('\n'))(t))))(t)
	if ofChild, ofParent := procfs.CPUTime(pid), procfs.CPUTime(parent.Process.Pid); ofChild == 0 || ofParent < ofChild {
		t.Errorf("CPU time of the child: %v, of its parent with it: %v", ofChild, ofParent)
	}
	must.Do(t, in.Close())
	_ = parent.Wait() // read fails at the end of the input
}
