// Package runbook rehearses runbooks of docs/operators: a test breaks something in a region, and follows the commands of the page in
// their order. The region consists of PostgreSQL, etcd and the management clusters, under the supervisor of the local region.
package runbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// hcpctlVariable is the environment variable that makes the test binary run as hcpctl.
const hcpctlVariable = "HCPMESH_TEST_HCPCTL"

func TestMain(m *testing.M) {
	if os.Getenv(hcpctlVariable) != "" {
		err := command.New(os.Stdout, os.Stderr).ExecuteContext(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, "hcpctl: "+err.Error())
		}
		os.Exit(command.ExitCode(err))
	}
	os.Exit(m.Run())
}

// rehearsal follows the commands of a page.
type rehearsal struct {
	t        *testing.T
	page     string
	commands []string
	environ  []string
	replace  *strings.Replacer
}

// rehearse reads the commands of a page: its indented lines. replace replaces the placeholders in them.
func rehearse(t *testing.T, page, stateDir string, replace ...string) *rehearsal {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("../../docs/operators", page)))(t)
	r := &rehearsal{t: t, page: page, replace: strings.NewReplacer(replace...)}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "    "); ok {
			r.commands = append(r.commands, strings.TrimSpace(rest))
		}
	}
	programs := t.TempDir()
	self := must.Get(os.Executable())(t)
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", hcpctlVariable, self)
	must.Do(t, os.WriteFile(filepath.Join(programs, "hcpctl"), []byte(script), 0o755))
	r.environ = append(os.Environ(), "HCPMESH_STATE_DIR="+stateDir, "PATH="+programs+":"+os.Getenv("PATH"))
	return r
}

// follow runs the next command of the page, which must begin with the given words, and returns its output.
func (r *rehearsal) follow(begins string) string {
	r.t.Helper()
	return r.run(r.next(begins))
}

// next returns the next command of the page, which must begin with the given words.
func (r *rehearsal) next(begins string) string {
	r.t.Helper()
	if len(r.commands) == 0 {
		r.t.Fatalf("%s has no more commands, want %q", r.page, begins)
	}
	next := r.replace.Replace(r.commands[0])
	r.commands = r.commands[1:]
	if !strings.HasPrefix(next, begins) {
		r.t.Fatalf("the next command of %s is %q, want %q", r.page, next, begins)
	}
	return next
}

// run runs a command of the page and returns its output.
func (r *rehearsal) run(next string) string {
	r.t.Helper()
	shell := exec.CommandContext(r.t.Context(), "sh", "-e", "-c", next)
	shell.Env = r.environ
	output, err := shell.CombinedOutput()
	r.t.Logf("$ %s\n%s", next, output)
	if err != nil {
		r.t.Fatalf("%s: %v", next, err)
	}
	return string(output)
}

// expect is like follow and checks that the output contains all texts.
func (r *rehearsal) expect(begins string, texts ...string) {
	r.t.Helper()
	output := r.follow(begins)
	for _, text := range texts {
		if !strings.Contains(output, text) {
			r.t.Errorf("the output of %q lacks %q", begins, text)
		}
	}
}

// awaitReady repeats the command of the page that shows the state of the region until the region is ready. A region can be ready before a probe
// notices that a process does not recover as fast as the one that it needs.
func (r *rehearsal) awaitReady() {
	r.t.Helper()
	command := r.next("hcpctl region status")
	eventually.Soon(r.t, "the region is ready", func() error {
		if output := r.run(command); !strings.Contains(output, "region Ready") {
			return errors.New(output)
		}
		return nil
	})
}

// complete checks that all commands of the page were followed.
func (r *rehearsal) complete() {
	r.t.Helper()
	if len(r.commands) > 0 {
		r.t.Errorf("%s has commands that the test does not follow: %q", r.page, r.commands)
	}
}

// startRegion starts a region of the third-party programs with other settings of a configuration.
func startRegion(t *testing.T, config local.Config) *fault.Region {
	t.Helper()
	if _, err := kubeapitest.Programs(); errors.Is(err, kubeapitest.ErrNotBuilt) {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	needed := []string{"-kube-apiserver", "-controllers"}
	config.Without = slices.DeleteFunc(config.ProcessNames(), func(name string) bool {
		return name == "postgres" || name == "etcd" || slices.ContainsFunc(needed, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	})
	return fault.Start(t, t.Context(), config)
}

// process returns the status of a process.
func process(t *testing.T, region *fault.Region, name string) local.ProcessStatus {
	t.Helper()
	for _, status := range region.Status().Processes {
		if status.Name == name {
			return status
		}
	}
	t.Fatalf("the region has no process %s", name)
	return local.ProcessStatus{}
}

// await waits until the region has a phase.
func await(t *testing.T, region *fault.Region, phase local.Phase) {
	t.Helper()
	eventually.Soon(t, "the region is "+string(phase), func() error {
		if status := region.Status(); status.Phase != phase {
			return fmt.Errorf("%+v", status.Processes)
		}
		return nil
	})
}

func TestHungProcess(t *testing.T) {
	region, etcd := startRegion(t, local.Config{}), fault.ComponentOf(adminv1.ComponentEtcd)
	r := rehearse(t, etcd.Runbook(fault.Hung), region.Dir, "PROCESS", etcd.Process)
	resume := region.Inject(t, t.Context(), etcd, fault.Hung)
	// On a busy machine the region may restart the process before the status is shown. The new process is stopped too until then.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = region.Signal("etcd", syscall.SIGSTOP)
			}
		}
	})
	eventually.Soon(t, "etcd does not respond", func() error {
		if status := process(t, region, "etcd"); !strings.Contains(status.Message, "does not respond") {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})

	r.expect("hcpctl region status", "region Degraded")
	cancel()
	stopping.Wait()
	if process(t, region, "etcd").Restarts > 0 {
		resume()
	}
	eventually.Soon(t, "etcd is restarted", func() error {
		if status := process(t, region, "etcd"); status.Restarts == 0 || status.State != "Ready" {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})

	r.expect("hcpctl region events etcd", "NotReady", "Hung", "SIGKILL", "liveness probes failed")
	r.follow("hcpctl region logs etcd")
	r.follow("hcpctl region restart etcd")
	r.awaitReady()
	r.complete()
}

func TestPostgreSQLAway(t *testing.T) {
	nightly.Only(t)
	region, backup := startRegion(t, local.Config{}), filepath.Join(t.TempDir(), "backup")
	var record struct{ PostgresDir string }
	data := must.Get(os.ReadFile(filepath.Join(region.Dir, "region.json")))(t)
	must.Do(t, json.Unmarshal(data, &record))
	folder := record.PostgresDir
	must.Do(t, os.Rename(filepath.Join(folder, "data"), backup))
	must.Do(t, region.Kill(t.Context(), "postgres"))
	eventually.Soon(t, "PostgreSQL fails to start", func() error {
		for _, event := range region.Events() {
			if event.Process == "postgres" && event.Type == "Failed" {
				return nil
			}
		}
		return errors.New("no such event")
	})

	r := rehearse(t, fault.ComponentOf(adminv1.ComponentPostgreSQL).Runbook(fault.DataLost), region.Dir, "BACKUP", backup, "POSTGRES_DIR", folder)
	r.expect("hcpctl region status", "region Degraded")
	r.expect("hcpctl region events postgres", "SIGKILL", "Failed")
	r.expect("hcpctl region logs postgres", "data")
	r.expect("grep postgresDir", folder)
	r.follow("mv -T")
	r.follow("hcpctl region restart postgres")
	r.awaitReady()
	r.complete()
}

func TestEtcdAway(t *testing.T) {
	nightly.Only(t)
	region, backup := startRegion(t, local.Config{}), filepath.Join(t.TempDir(), "backup")
	config := must.Get(clientcmd.BuildConfigFromFlags("", region.Endpoints().Kubeconfigs["mgmt-1"]))(t)
	cluster := must.Get(kubernetes.NewForConfig(config))(t)
	create := func(name string) {
		t.Helper()
		eventually.Soon(t, "namespace "+name+" is created", func() error {
			_, err := cluster.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	r := rehearse(t, fault.ComponentOf(adminv1.ComponentEtcd).Runbook(fault.DataLost), region.Dir, "BACKUP", backup)
	create("before")
	r.follow("hcpctl region kill etcd --signal STOP")
	r.follow("cp -a")
	r.follow("hcpctl region kill etcd --signal CONT")
	await(t, region, local.PhaseReady)
	create("after")

	must.Do(t, os.WriteFile(filepath.Join(region.Dir, "etcd", "member", "snap", "db"), []byte("damaged"), 0o600))
	must.Do(t, region.Kill(t.Context(), "etcd"))
	eventually.Soon(t, "etcd terminates by itself", func() error {
		for _, event := range region.Events() {
			if event.Process == "etcd" && event.ExitCode != nil && *event.ExitCode > 0 {
				return nil
			}
		}
		return errors.New("no such event")
	})

	r.expect("hcpctl region status", "region Degraded")
	r.expect("hcpctl region events etcd", "SIGKILL", "Exited")
	r.follow("hcpctl region logs etcd")
	r.follow("cp -a")
	r.follow("mv -T")
	r.follow("hcpctl region restart etcd")
	r.follow("hcpctl region restart $(")
	r.awaitReady()
	r.complete()

	if _, err := cluster.CoreV1().Namespaces().Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of the backup: %v", err)
	}
	if _, err := cluster.CoreV1().Namespaces().Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is newer than the backup: %v", err)
	}
	create("restored")
}

func TestDiskFull(t *testing.T) {
	nightly.Only(t)
	smalldisk.Run(t, 384<<20, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "region")
		region := startRegion(t, local.Config{StateDir: dir})
		must.Do(t, os.Rename(smalldisk.Fill(t, disk), filepath.Join(dir, "logs", "old.log.1")))
		await(t, region, local.PhaseDegraded)
		eventually.Soon(t, "the databases name the disk", func() error {
			for _, name := range []string{"postgres", "etcd"} {
				if status := process(t, region, name); !strings.HasPrefix(status.Message, "the disk is full") {
					return fmt.Errorf("%+v", status)
				}
			}
			return nil
		})

		r := rehearse(t, fault.ComponentOf(adminv1.ComponentEtcd).Runbook(fault.DiskFull), dir)
		r.expect("hcpctl region status", "region Degraded", "DISK FULL: ", " of 384 MiB are free")
		r.expect("hcpctl region events", "the disk is full")
		r.expect("df -h", "100%")
		r.expect("du -xh", filepath.Join(dir, "logs"))
		r.follow("rm -f")
		r.awaitReady()
		r.complete()
	})
}
