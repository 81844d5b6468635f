package kubernetes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

// starterVariable makes the test binary start a cluster with the options in it and wait for its end.
const starterVariable = "HCPMESH_TEST_CLUSTER"

func TestMain(m *testing.M) {
	if encoded := os.Getenv(starterVariable); encoded != "" {
		if err := runStarter(encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runStarter starts a cluster with a workload, reports it, and waits until the process is killed.
func runStarter(encoded string) error {
	var o kubernetes.Options
	if err := json.Unmarshal([]byte(encoded), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := kubernetes.Start(ctx, o)
	if err != nil {
		return err
	}
	image, err := kubernetes.ProgramImage(filepath.Join(filepath.Dir(o.NodeProgram), "probe"))
	if err != nil {
		return err
	}
	if err := c.Push(ctx, probeImage, image); err != nil {
		return err
	}
	if err := c.Apply(ctx, strings.NewReader("{apiVersion: v1, kind: Namespace, metadata: {name: probes}}\n---\n"+workload("web", 1))); err != nil {
		return err
	}
	err = eventually.Repeat(ctx, func() error {
		deployment, err := c.Client().AppsV1().Deployments(space).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && deployment.Status.ReadyReplicas == 0 {
			err = errors.New("no pod is ready")
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return c.Err()
}

// TestClusterTerminatesWithItsStarter checks that nothing remains of a cluster with pods whose starter is killed, and that the next start
// with its folder continues it.
func TestClusterTerminatesWithItsStarter(t *testing.T) {
	transcript.Outcome(t, transcript.Nodes)
	nightly.Only(t)
	o := options(t, kubernetes.Node{Name: "node-1"})
	encoded := must.Get(json.Marshal(o))(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	program := must.Get(os.Executable())(t)
	starter := exec.CommandContext(ctx, program)
	starter.Env = append(os.Environ(), starterVariable+"="+string(encoded))
	starter.Stderr = os.Stderr
	output := must.Get(starter.StdoutPipe())(t)
	must.Do(t, starter.Start())
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "ready\n" {
		_ = starter.Wait()
		printLogs(t, o.Dir)
		t.Fatalf("the starter printed %q: %v", line, err)
	}
	launcher := launcherOf(t, starter.Process.Pid)
	if left := remains(t, o.Dir, launcher); len(left) < 10 {
		t.Errorf("only these processes and cgroups of a running cluster were found: %v", left)
	}
	must.Do(t, starter.Process.Kill())
	_ = starter.Wait()
	eventually.Before(ctx, t, "nothing remains", func() error {
		if left := remains(t, o.Dir, launcher); len(left) > 0 {
			return fmt.Errorf("remaining:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if t.Failed() {
		return
	}
	c := start(t, o)
	eventually.Before(ctx, t, "the Deployment of the killed cluster serves", func() error {
		pod := c.readyPods("web", 1)[0].Name
		name, err := c.run(pod, "get", "http://web")
		if err == nil && name != pod {
			err = fmt.Errorf("%s responded", name)
		}
		return err
	})
}

// TestStartReportsTerminatedProgram checks that Start names the program of a node that terminates, instead of waiting for the node.
func TestStartReportsTerminatedProgram(t *testing.T) {
	nightly.Only(t)
	o := options(t, kubernetes.Node{Name: "node-1"})
	programs := t.TempDir()
	entries := must.Get(os.ReadDir(o.ThirdParty))(t)
	for _, entry := range entries {
		must.Do(t, os.Symlink(filepath.Join(o.ThirdParty, entry.Name()), filepath.Join(programs, entry.Name())))
	}
	broken := filepath.Join(programs, "kubelet")
	must.Do(t, errors.Join(os.Remove(broken), os.WriteFile(broken, []byte("#!/bin/sh\nexit 7\n"), 0o755)))
	o.ThirdParty = programs
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := kubernetes.Start(ctx, o); err == nil || !strings.Contains(err.Error(), "kubelet terminated: exit status 7") {
		t.Errorf("Start with a broken kubelet: %v", err)
	}
}

// launcherOf returns the process ID of the launcher that a process has started.
func launcherOf(t *testing.T, starter int) int {
	t.Helper()
	tasks := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", starter)))(t)
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			command, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if pid, err := strconv.Atoi(child); err == nil && strings.Contains(string(command), "kubernetes-node\x00launch") {
				return pid
			}
		}
	}
	t.Fatal("the starter has no launcher")
	return 0
}

// remains returns the processes whose command lines or mounts contain dir, and the cgroups of a launcher.
func remains(t *testing.T, dir string, launcher int) []string {
	t.Helper()
	var left []string
	processes := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	for _, process := range processes {
		if process == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join(process, "mountinfo"))
		if strings.Contains(string(command), dir) || strings.Contains(string(mounts), dir) {
			left = append(left, process+": "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	own := must.Get(os.ReadFile("/proc/self/cgroup"))(t)
	for _, line := range strings.Fields(string(own)) {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(parts[1], "name="), parts[2], fmt.Sprintf("hcpmesh-machine-%d-*", launcher)))
		left = append(left, groups...)
	}
	return left
}
