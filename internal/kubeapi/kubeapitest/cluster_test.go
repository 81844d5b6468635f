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

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// role is an environment variable that makes the test binary start a management cluster and run until it is killed.
const role = "HCPMESH_TEST_KUBEAPI"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		cluster, err := kubeapitest.Open(context.Background())
		if err == nil {
			err = cluster.RunControllers(context.Background())
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

// TestClusterTerminatesWithTestBinary kills a test binary, as a timeout would, and expects that all processes that it
// has started terminate.
func TestClusterTerminatesWithTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent-death signal")
	}
	dir := t.TempDir()
	binary := exec.Command("/proc/self/exe")
	binary.Env = append(os.Environ(), role+"=1", "TMPDIR="+dir)
	binary.Stderr = t.Output()
	output := must.Get(binary.StdoutPipe())(t)
	must.Do(t, binary.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = binary.Process.Kill()
	_ = binary.Wait()
	if err != nil {
		t.Fatalf("no management cluster was started: %v", err)
	}
	var pids []int
	if err := json.Unmarshal([]byte(line), &pids); err != nil || len(pids) != 3 {
		t.Fatalf("%s: %v; want etcd, kube-apiserver and the controllers", line, err)
	}
	eventually.Soon(t, "the processes terminate", func() error {
		left := map[int]string{}
		for _, pid := range pids {
			if name := runningIn(pid, dir); name != "" {
				left[pid] = name
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("running: %v", left)
		}
		return nil
	})
}

// runningIn returns the name of a process if its working folder is below dir. A terminated process has none.
func runningIn(pid int, dir string) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if at, err := os.Readlink(filepath.Join(proc, "cwd")); err != nil || !strings.HasPrefix(at, dir) {
		return ""
	}
	name, _ := os.ReadFile(filepath.Join(proc, "comm"))
	return strings.TrimSpace(string(name))
}
