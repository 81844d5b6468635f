package kubeapitest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
)

// role has the test binary become one that starts a management cluster and never ends by itself.
const role = "HCPMESH_TEST_KUBEAPI"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		cluster, err := kubeapitest.Open(context.Background())
		if err == nil {
			err = cluster.RunControllerManager(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = json.NewEncoder(os.Stdout).Encode(cluster.PIDs())
		select {}
	}
	os.Exit(m.Run())
}

// TestClusterDiesWithTheTestBinary kills a test binary, as a timeout or the machine's lack of memory would, and expects
// that nothing that it has started runs on.
func TestClusterDiesWithTheTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent-death signal")
	}
	dir := t.TempDir()
	binary := exec.Command("/proc/self/exe")
	binary.Env = append(os.Environ(), role+"=1", "TMPDIR="+dir)
	binary.Stderr = t.Output()
	output, err := binary.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = binary.Process.Kill()
	_ = binary.Wait()
	if err != nil {
		t.Fatalf("no management cluster was started: %v", err)
	}
	var pids []int
	if err := json.Unmarshal([]byte(line), &pids); err != nil || len(pids) != 3 {
		t.Fatalf("%s: %v; want etcd, kube-apiserver and kube-controller-manager", line, err)
	}
	deadline := time.After(time.Minute)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		left := map[int]string{}
		for _, pid := range pids {
			if name := runningIn(pid, dir); name != "" {
				left[pid] = name
			}
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("these run on: %v", left)
		}
	}
}

// runningIn is the name of a process, if it runs in a folder below dir; one that has ended has no folder any more.
func runningIn(pid int, dir string) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if at, err := os.Readlink(filepath.Join(proc, "cwd")); err != nil || !strings.HasPrefix(at, dir) {
		return ""
	}
	name, _ := os.ReadFile(filepath.Join(proc, "comm"))
	return strings.TrimSpace(string(name))
}
