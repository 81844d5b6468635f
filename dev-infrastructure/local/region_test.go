package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/ports"
)

// playRegion has the test binary run a region of the third-party parts until it is killed.
const playRegion = "HCPMESH_TEST_REGION_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(playRegion); dir != "" {
		region, err := Start(context.Background(), thirdParties(dir))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		<-region.Down()
		region.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ours are the processes that need our own programs built; test/ runs the whole region.
func ours() []string {
	names := []string{"cosmos-emulator", "eventgrid-emulator", "azure-emulator", "update-graph", "maestro-server", "cluster-service", "backend", "frontend", "arm-frontdoor", "admin"}
	for _, cluster := range []string{"mgmt-1", "mgmt-2"} {
		names = append(names, cluster+"-hypershift-runtime", cluster+"-maestro-agent")
	}
	return names
}

// thirdParties is a region of PostgreSQL, etcd and the management clusters.
func thirdParties(dir string) Config {
	free := 0
	return Config{StateDir: dir, BasePort: &free, Throwaway: true, Without: ours()}
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func until(ctx context.Context, t *testing.T, what string, condition func() bool) {
	t.Helper()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestARegionSurvivesItsProcessesAndLeavesNothing(t *testing.T) {
	ctx := patience(t)
	// Longer than the address of a unix socket may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 10))
	config := thirdParties(dir)
	began := time.Now()
	config.OnChange = func(s ProcessStatus) {
		t.Logf("%6dms %s %s %s", time.Since(began).Milliseconds(), s.Name, s.State, s.Message)
	}
	region, err := Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()

	for _, name := range region.Processes() {
		if err := region.Kill(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range region.Processes() {
		if err := region.AwaitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
	}

	client := control.NewClient(dir)
	var status Status
	if err := client.Status(ctx, &status); err != nil {
		t.Fatal(err)
	}
	if status.Phase != PhaseReady || len(status.Processes) != len(region.Processes()) {
		t.Errorf("the control socket says %s with %d processes", status.Phase, len(status.Processes))
	}
	for _, process := range status.Processes {
		if process.State != "Ready" || process.Restarts == 0 {
			t.Errorf("after it was killed: %+v", process)
		}
	}
	if err := client.Restart(ctx, "etcd"); err != nil {
		t.Error(err)
	}
	if err := client.Kill(ctx, "etcd", "no-such-signal"); err == nil {
		t.Error("an unknown signal was sent")
	}
	if _, err := Start(ctx, thirdParties(dir)); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second supervisor on the same folder: %v", err)
	}
	if err := Purge(dir); err == nil {
		t.Error("a running region was removed")
	}

	base := region.state.record.BasePort
	postgresDir := region.state.record.PostgresDir
	region.Close()
	for _, process := range status.Processes {
		if process.Pid > 0 && syscall.Kill(process.Pid, 0) == nil && commandOf(process.Pid) == process.Name {
			t.Errorf("%s is left running", process.Name)
		}
	}
	if err := ports.AwaitFree(ctx, region.wantedPorts(base), time.Millisecond); err != nil {
		t.Error(err)
	}

	// The state is kept, and the ports with it.
	again, err := Start(ctx, thirdParties(dir))
	if err != nil {
		t.Fatal(err)
	}
	if again.state.record.BasePort != base {
		t.Errorf("the base port was %d and is %d", base, again.state.record.BasePort)
	}
	again.Close()
	if err := Purge(dir); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{dir, postgresDir} {
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
}

func commandOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(name))
}

func TestNothingOutlivesARegionWhoseSupervisorWasKilled(t *testing.T) {
	ctx := patience(t)
	dir := t.TempDir()
	supervising := exec.Command(os.Args[0], "-test.run=^$")
	supervising.Env = append(os.Environ(), playRegion+"="+dir)
	supervising.Stderr = os.Stderr
	if err := supervising.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = supervising.Wait()
	}()
	t.Cleanup(func() {
		_ = supervising.Process.Kill()
		<-ended
		if err := Purge(dir); err != nil {
			t.Error(err)
		}
	})
	var status Status
	until(ctx, t, "the region to be ready", func() bool {
		select {
		case <-ended:
			t.Fatal("the region did not start")
		default:
		}
		return control.NewClient(dir).Status(ctx, &status) == nil && status.Phase == PhaseReady
	})
	var pids []int
	for _, process := range status.Processes {
		pids = append(pids, process.Pid)
		pids = append(pids, childrenOf(process.Pid)...)
	}
	if len(pids) <= len(status.Processes) {
		t.Fatal("PostgreSQL has no children, which cannot be")
	}

	if err := supervising.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	until(ctx, t, "every process to end", func() bool {
		return !slices.ContainsFunc(pids, running)
	})
	data, err := os.ReadFile(filepath.Join(dir, "region.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kept record
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	config := thirdParties(dir)
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	if err := ports.AwaitFree(ctx, (&Region{config: config}).wantedPorts(kept.BasePort), portPatience); err != nil {
		t.Error(err)
	}
}

// running reports whether a process is there and not just waiting to be reaped.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func childrenOf(pid int) []int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var children []int
	for field := range strings.FieldsSeq(string(data)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

func TestATakenPortIsOneClearSentence(t *testing.T) {
	// The others of the block must be free, which those around a port that the kernel chose need not be.
	base, err := ports.FreeBlock(portsPerRegion)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+int(etcdPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	_, err = Start(patience(t), Config{StateDir: dir, BasePort: &base})
	var taken *ports.Taken
	if !errors.As(err, &taken) {
		t.Fatalf("Start() = %v, want a *ports.Taken", err)
	}
	for _, want := range []string{fmt.Sprintf("port %d", base+int(etcdPort)), "etcd", "--base-port", fmt.Sprintf("pid %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the sentence lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

func TestConfigurationIsStrict(t *testing.T) {
	tests := map[string]struct {
		reason string
		file   string
		want   string
	}{
		"unknown field":   {"a misspelt field must not be ignored", "fidelty: status\n", `unknown field "fidelty"`},
		"wrong type":      {"the field is named", "managementClusters: many\n", "managementClusters"},
		"bad fidelity":    {"there are two", "fidelity: perfect\n", `fidelity: "perfect"`},
		"negative scale":  {"time does not run backwards", "timeScale: -1\n", "timeScale: -1"},
		"too many":        {"ports are laid out for eight", "managementClusters: 9\n", "managementClusters: 9"},
		"reserved port":   {"others need root", "basePort: 80\n", "basePort: 80"},
		"level":           {"slog has four", "logLevel: loud\n", `logLevel: "loud"`},
		"trust domain":    {"it is part of a URI", "trustDomain: A_B\n", `trustDomain: "A_B"`},
		"unknown process": {"a misspelt process would be started", "without: [fronted]\n", `without: there is no process "fronted"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "region.yaml")
			if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			config := Config{StateDir: t.TempDir()}
			err := ReadConfig(path, &config)
			if err == nil {
				_, err = Start(context.Background(), config)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
}

func TestAStateFolderKeepsWhatItIs(t *testing.T) {
	dir := t.TempDir()
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	config := Config{StateDir: dir}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	if err := s.reconcile(&config, 20000); err != nil {
		t.Fatal(err)
	}
	config.Location = "eastus"
	if err := s.reconcile(&config, 20000); err == nil || !strings.Contains(err.Error(), "--purge") {
		t.Errorf("the region moved to another location: %v", err)
	}
	endpoints, err := Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if endpoints.ARM != "https://127.0.0.1:20000" || endpoints.Location != DefaultLocation {
		t.Errorf("described as %+v", endpoints)
	}
	if _, err := Describe(t.TempDir()); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("a folder without a region: %v", err)
	}
}
