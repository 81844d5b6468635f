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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// regionDirVariable is an environment variable that makes the test binary run a region of PostgreSQL and etcd until it is
// killed.
const regionDirVariable = "HCPMESH_TEST_REGION_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(regionDirVariable); dir != "" {
		region, err := Start(context.Background(), oneCluster(dir).StoresOnly())
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

// ours returns the processes of our own programs, which would have to be built; test/ runs whole regions.
func ours() []string {
	return slices.DeleteFunc(new(Config).ProcessNames(), func(name string) bool {
		return name == "postgres" || name == "etcd" || strings.HasSuffix(name, "-kube-apiserver") || strings.HasSuffix(name, "-controllers")
	})
}

// thirdParties returns the configuration of a region with only PostgreSQL, etcd and the management clusters.
func thirdParties(dir string) Config {
	free := 0
	return Config{StateDir: dir, BasePort: &free, Throwaway: true, Without: ours()}
}

// oneCluster is thirdParties with one management cluster. The start of an API server uses more CPU time than most tests.
func oneCluster(dir string) Config {
	config := thirdParties(dir)
	config.ManagementClusters = 1
	config.Without = slices.DeleteFunc(config.Without, func(name string) bool { return strings.HasPrefix(name, "mgmt-2-") })
	return config
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	t.Cleanup(cancel)
	return ctx
}

// stateDir returns a folder for the state of a region. The region must be closed when the test returns. PostgreSQL's data is elsewhere,
// because its user cannot enter the folder; it is removed as well.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := Purge(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func until(ctx context.Context, t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually.Before(ctx, t, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestRegionSurvivesKillsAndLeavesNothing makes the processes of a region hang and then kills them. Each is restarted. A closed region leaves
// no process and no port, and a purged one no file.
func TestRegionSurvivesKillsAndLeavesNothing(t *testing.T) {
	ctx := testContext(t)
	// The path is longer than the address of a unix socket may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 10))
	config := oneCluster(dir)
	began, degraded := time.Now(), make(chan struct{})
	var once sync.Once
	config.OnChange = func(s ProcessStatus) {
		t.Logf("%6dms %s %s %s", time.Since(began).Milliseconds(), s.Name, s.State, s.Message)
		if s.State == "NotReady" {
			once.Do(func() { close(degraded) })
		}
	}
	region := must.Get(Start(ctx, config))(t)
	defer region.Close()
	hang(ctx, t, region, degraded)
	restarts := map[string]int{}
	for _, process := range region.Status().Processes {
		restarts[process.Name] = process.Restarts
	}

	for _, name := range region.Processes() {
		must.Do(t, region.Kill(ctx, name))
	}
	for _, name := range region.Processes() {
		must.Do(t, region.AwaitReady(ctx, name))
	}

	client := control.NewClient(dir)
	var status Status
	must.Do(t, client.Status(ctx, &status))
	if status.Phase != PhaseReady || len(status.Processes) != len(region.Processes()) {
		t.Errorf("the control socket reports phase %s with %d processes", status.Phase, len(status.Processes))
	}
	for _, process := range status.Processes {
		if process.State != "Ready" || process.Restarts <= restarts[process.Name] {
			t.Errorf("after it was killed: %+v", process)
		}
	}
	if err := client.Restart(ctx, "etcd"); err != nil {
		t.Error(err)
	}
	if err := client.Kill(ctx, "etcd", "no-such-signal"); err == nil {
		t.Error("an unknown signal was sent")
	}
	if _, err := Start(ctx, oneCluster(dir)); err == nil || !strings.Contains(err.Error(), "already running") {
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
			t.Errorf("%s still runs", process.Name)
		}
	}
	if err := AwaitFreePorts(ctx, region.wantedPorts(base), time.Millisecond); err != nil {
		t.Error(err)
	}

	// The state is kept, including the ports.
	again := must.Get(Start(ctx, onlyPostgres(dir)))(t)
	if again.state.record.BasePort != base {
		t.Errorf("the base port changed from %d to %d", base, again.state.record.BasePort)
	}
	again.Close()
	must.Do(t, Purge(dir))
	for _, left := range []string{dir, postgresDir} {
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("%s still exists: %v", left, err)
		}
	}
}

func commandOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(name))
}

func TestKilledRegionLeavesNoProcesses(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	supervising := exec.Command(os.Args[0], "-test.run=^$")
	supervising.Env = append(os.Environ(), regionDirVariable+"="+dir)
	supervising.Stderr = os.Stderr
	must.Do(t, supervising.Start())
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
		t.Fatal("PostgreSQL has no child processes")
	}

	must.Do(t, supervising.Process.Kill())
	<-ended
	until(ctx, t, "every process to end", func() bool {
		return !slices.ContainsFunc(pids, running)
	})
	data := must.Get(os.ReadFile(filepath.Join(dir, "region.json")))(t)
	var kept record
	must.Do(t, json.Unmarshal(data, &kept))
	config := oneCluster(dir).StoresOnly()
	must.Do(t, config.complete())
	if err := AwaitFreePorts(ctx, (&Region{config: config}).wantedPorts(kept.BasePort), portTimeout); err != nil {
		t.Error(err)
	}
}

// running reports whether a process exists and does not only wait to be reaped.
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

// TestPhaseIsThatOfProcesses checks that a status does not report all processes as ready and the region as degraded, when the notification
// of the last change has not arrived yet.
func TestPhaseIsThatOfProcesses(t *testing.T) {
	ctx, dir := testContext(t), t.TempDir()
	running := must.Get(supervisor.New([]supervisor.Spec{{Name: "program", Program: "/bin/sleep", Args: []string{"600"}}}, supervisor.Options{LogDir: dir}))(t)
	must.Do(t, running.Start(ctx))
	defer running.Stop()
	region := &Region{state: &state{dir: dir}, supervisor: running, phase: PhaseDegraded}
	if status := region.Status(); status.Phase != PhaseReady || status.Processes[0].State != supervisor.Ready {
		t.Errorf("the region is %s with the process %s", status.Phase, status.Processes[0].State)
	}
}

// hang stops one process of each kind with SIGSTOP, and all of PostgreSQL's with it: the region is degraded, each process is
// restarted, and the region is ready again.
func hang(ctx context.Context, t *testing.T, region *Region, degraded <-chan struct{}) {
	t.Helper()
	before := region.Status()
	pids := map[string]int{}
	var backends []int
	for _, process := range before.Processes {
		switch process.Name {
		case "postgres":
			backends = childrenOf(process.Pid)
		case "etcd", "mgmt-1-kube-apiserver", "mgmt-1-controllers":
		default:
			continue
		}
		pids[process.Name] = process.Pid
		must.Do(t, region.Signal(process.Name, syscall.SIGSTOP))
	}
	if len(backends) == 0 {
		t.Fatal("PostgreSQL has no child processes")
	}
	for _, pid := range backends {
		must.Do(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	select {
	case <-degraded:
	case <-ctx.Done():
		t.Fatal("no process became not ready")
	}
	if status := region.Status(); status.Phase != PhaseDegraded {
		t.Errorf("with hung processes the region is %s", status.Phase)
	}
	var after Status
	until(ctx, t, "all hung processes to be restarted and ready", func() bool {
		after = region.Status()
		for _, process := range after.Processes {
			if process.State != "Ready" || process.Pid == pids[process.Name] {
				return false
			}
		}
		return true
	})
	if after.Phase != PhaseReady || !after.Since.After(before.Since) {
		t.Errorf("after the restarts the region is %s since %s, before since %s", after.Phase, after.Since, before.Since)
	}
	var events []Event
	must.Do(t, control.NewClient(region.state.dir).Events(ctx, &events))
	// The other processes were not ready for a while, because they depend on these. None of them may count as hung.
	hung := map[string]int{}
	for _, event := range events {
		if event.Type == "Hung" {
			hung[event.Process] = event.Pid
		}
	}
	if diff := cmp.Diff(pids, hung); diff != "" {
		t.Errorf("hung processes by events (-want +got):\n%s", diff)
	}
}

func TestPortInUseIsReported(t *testing.T) {
	// The other ports of the block must be free, which ports next to one that the kernel chose may not be.
	base, err := FreePorts(portsPerRegion)
	if err != nil {
		t.Fatal(err)
	}
	listener := must.Get(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+int(etcdPort))))(t)
	defer listener.Close()
	dir := t.TempDir()
	_, err = Start(testContext(t), Config{StateDir: dir, BasePort: &base})
	var taken *PortTaken
	if !errors.As(err, &taken) {
		t.Fatalf("Start() = %v, want a *PortTaken", err)
	}
	for _, want := range []string{fmt.Sprintf("port %d", base+int(etcdPort)), "etcd", "--base-port", fmt.Sprintf("pid %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has more than one line: %v", err)
	}
}

func TestConfigurationIsStrict(t *testing.T) {
	tests := map[string]struct {
		reason string
		file   string
		want   string
	}{
		"unknown field":   {"a misspelled field must not be ignored", "fidelty: status\n", `unknown field "fidelty"`},
		"wrong type":      {"the error names the field", "managementClusters: many\n", "managementClusters"},
		"bad fidelity":    {"only two fidelities exist", "fidelity: perfect\n", `fidelity: "perfect"`},
		"negative scale":  {"a factor is not negative", "timeScale: -1\n", "timeScale: -1"},
		"too many":        {"the layout of the ports allows eight", "managementClusters: 9\n", "managementClusters: 9"},
		"reserved port":   {"lower ports need root", "basePort: 80\n", "basePort: 80"},
		"level":           {"only four levels exist", "logLevel: loud\n", `logLevel: "loud"`},
		"trust domain":    {"it is part of a URI", "trustDomain: A_B\n", `trustDomain: "A_B"`},
		"unknown process": {"a misspelled process would be started", "without: [fronted]\n", `without: unknown process "fronted"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "region.yaml")
			must.Do(t, os.WriteFile(path, []byte(test.file), 0o600))
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

func TestStateFolderKeepsItsSettings(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(openState(dir))(t)
	defer s.close()
	config := Config{StateDir: dir}
	must.Do(t, config.complete())
	must.Do(t, s.reconcile(&config, 20000))
	config.Location = "eastus"
	if err := s.reconcile(&config, 20000); err == nil || !strings.Contains(err.Error(), "--purge") {
		t.Errorf("the location of the region changed: %v", err)
	}
	endpoints := must.Get(Describe(dir))(t)
	if endpoints.ARM != "https://127.0.0.1:20000" || endpoints.Location != DefaultLocation {
		t.Errorf("endpoints: %+v", endpoints)
	}
	if _, err := Describe(t.TempDir()); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("a folder without a region: %v", err)
	}
}

// TestDescribeHasOptionalParts checks that the parts that a region was started with have endpoints, and others have none.
func TestDescribeHasOptionalParts(t *testing.T) {
	for _, with := range [][]string{nil, {WithObservability}} {
		s := &state{dir: t.TempDir()}
		must.Do(t, s.reconcile(&Config{TrustDomain: DefaultTrustDomain, With: with}, 18400))
		e := must.Get(Describe(s.dir))(t)
		if want := len(with) > 0; (e.Prometheus != "") != want || (e.Alertmanager != "") != want {
			t.Errorf("with %v: Prometheus is at %q and Alertmanager at %q", with, e.Prometheus, e.Alertmanager)
		}
	}
}
