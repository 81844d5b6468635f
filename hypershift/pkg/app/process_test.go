package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hosted connects to the hosted cluster with the kubeconfig of the cluster's owner.
func (s *sample) hosted(t testing.TB) kubernetes.Interface {
	t.Helper()
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: contract.AdminKubeconfig(s.name)})
	config := must.Get(clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]))(t)
	return must.Get(kubernetes.NewForConfig(config))(t)
}

// nodesReady returns the nodes of the hosted API server, and an error unless there are exactly n and all are Ready.
func (s *sample) nodesReady(t testing.TB, n int) ([]corev1.Node, error) {
	t.Helper()
	list, err := s.hosted(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, node := range list.Items {
		ready := false
		for _, condition := range node.Status.Conditions {
			ready = ready || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
		if !ready {
			return nil, fmt.Errorf("node %s is not Ready", node.Name)
		}
	}
	if len(list.Items) != n {
		return nil, fmt.Errorf("%d nodes instead of %d", len(list.Items), n)
	}
	return list.Items, nil
}

// servers returns the process IDs of the sample's hosted API server, by searching all processes.
func (s *sample) servers(t testing.TB) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("processes cannot be listed here: %v", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		commandLine, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.Contains(string(commandLine), "--etcd-prefix="+hostedapi.Prefix(s.controlPlane())+"\x00") &&
			strings.Contains(string(commandLine), s.Etcd) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *sample) expectNothingRuns(t testing.TB) {
	t.Helper()
	eventually.Soon(t, "no hosted API server runs", func() error {
		if pids := s.servers(t); len(pids) > 0 {
			return fmt.Errorf("hosted API servers still run: %v", pids)
		}
		return nil
	})
}

func withProcessFidelity(o *Options) { o.Fidelity = "process" }

// TestProcessFidelity runs the tests that can share a hosted API server, whose start uses more CPU time than most of them. The runtime has the
// rights of its chart.
func TestProcessFidelity(t *testing.T) {
	t.Parallel()
	m := newManagementCluster(t)
	limited := m.asServiceAccount(t)
	stateDir := t.TempDir()
	options := m.options(stateDir, func(o *Options) { withProcessFidelity(o); o.TimeScale = 0.001 })
	stop := limited.startRuntime(t, options)
	s := m.sample(t, "process")
	s.createPrerequisites(t)
	began := time.Now()
	s.apply(t, s.cluster)
	s.apply(t, s.pool)
	hc := s.waitCluster(t, available)
	t.Logf("Available after %s", time.Since(began))
	if host := hc.Status.ControlPlaneEndpoint.Host; host != "127.0.0.1" {
		t.Errorf("endpoint host %q", host)
	}
	s.waitPool(t, poolReady(3))
	t.Logf("node pool ready after %s", time.Since(began))

	nodes := must.Get(s.nodesReady(t, 3))(t)
	for _, node := range nodes {
		if node.Labels["team"] != "a" || node.Labels[hyperv1.NodePoolLabel] != s.pool.GetName() || node.Status.NodeInfo.KubeletVersion != "v1.33.5" {
			t.Errorf("node %s: labels %v, kubelet %s", node.Name, node.Labels, node.Status.NodeInfo.KubeletVersion)
		}
		if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "dedicated" {
			t.Errorf("node %s: taints %v", node.Name, node.Spec.Taints)
		}
		if _, err := s.hosted(t).CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("node %s has no lease: %v", node.Name, err)
		}
	}
	if keys := s.etcdKeys(t); keys == 0 {
		t.Error("the hosted API server has no keys below its prefix")
	}
	s.expectEncryption(t)
	s.expectOwnKeysOnly(t, stateDir)

	for _, replicas := range []int{5, 1} {
		s.setPool(t, int64(replicas), "spec", "replicas")
		s.apply(t, s.pool)
		eventually.Soon(t, fmt.Sprintf("%d nodes are ready", replicas), func() error { _, err := s.nodesReady(t, replicas); return err })
		s.waitPool(t, poolReady(int32(replicas)))
	}
	t.Run("Rights", func(t *testing.T) { m.expectLimits(t, limited.client) })
	t.Run("NodePoolLifecycle", s.testNodePoolLifecycle)
	t.Run("Authentication", s.testAuthentication)
	t.Run("ReaderOnlyReads", s.testReaderOnlyReads)
	restart := func() {
		stop()
		s.expectNothingRuns(t)
		stop = limited.startRuntime(t, options)
	}
	t.Run("BreakGlass", func(t *testing.T) { s.testBreakGlass(t, restart) })
	eventually.Soon(t, "one node is ready after a restart", func() error { _, err := s.nodesReady(t, 1); return err })
	if after := s.hostedCluster(t); after.Status.ControlPlaneEndpoint != hc.Status.ControlPlaneEndpoint {
		t.Errorf("the endpoint before the restart: %v, after: %v", hc.Status.ControlPlaneEndpoint, after.Status.ControlPlaneEndpoint)
	}

	pids := s.servers(t)
	if len(pids) != 1 {
		t.Fatalf("hosted API servers: %v", pids)
	}
	must.Do(t, syscall.Kill(pids[0], syscall.SIGKILL))
	eventually.Soon(t, "another hosted API server replaces the killed one", func() error {
		if now := s.servers(t); len(now) != 1 || now[0] == pids[0] {
			return fmt.Errorf("hosted API servers: %v", now)
		}
		_, err := s.nodesReady(t, 1)
		return err
	})

	s.expectCanary(t)

	s.delete(t)
	s.expectNothingRuns(t)
	if keys := s.etcdKeys(t); keys != 0 {
		t.Errorf("%d keys of the hosted cluster are still in etcd", keys)
	}
	if _, err := os.Stat(filepath.Join(stateDir, s.controlPlane())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder still exists: %v", err)
	}
	s.expectNoEtcdUser(t)
}

func TestCreationAndDeletionSurviveKills(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	options := m.options(t.TempDir(), withProcessFidelity)
	s := m.sample(t, "killed")
	first := m.spawnRuntime(t, options)
	eventually.Soon(t, "both kinds are served", func() error {
		return errors.Join(s.client.List(t.Context(), &hyperv1.HostedClusterList{}), s.client.List(t.Context(), &hyperv1.NodePoolList{}))
	})

	s.createWithPool(t)
	for _, reached := range []func() error{
		func() error {
			return s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: s.name}, &hyperv1.HostedControlPlane{})
		},
		func() error {
			if len(s.servers(t)) == 0 {
				return errors.New("no hosted API server was started yet")
			}
			return nil
		},
		func() error {
			var records corev1.ConfigMapList
			if err := s.client.List(t.Context(), &records, client.InNamespace(s.controlPlane()), client.HasLabels{contract.MachinesLabel}); err != nil || len(records.Items) == 0 {
				return fmt.Errorf("no machines are stored yet: %v", err)
			}
			return nil
		},
	} {
		eventually.Soon(t, "the creation reaches the next step", reached)
		first.Kill()
		s.expectNothingRuns(t)
		first = m.spawnRuntime(t, options)
	}
	s.waitCluster(t, available)
	s.waitPool(t, poolReady(3))
	eventually.Soon(t, "three nodes are ready", func() error { _, err := s.nodesReady(t, 3); return err })
	if pids := s.servers(t); len(pids) != 1 {
		t.Errorf("hosted API servers: %v", pids)
	}
	must.Do(t, s.client.Delete(t.Context(), s.hostedCluster(t)))
	first.Kill()
	m.spawnRuntime(t, options)
	s.awaitGone(t)
	s.expectNothingRuns(t)
	if keys := s.etcdKeys(t); keys != 0 {
		t.Errorf("%d keys of the hosted cluster are still in etcd", keys)
	}
	s.expectNoEtcdUser(t)
}

// TestRestartDateRestartsTheAPIServer changes HyperShift's annotation for restarting a control plane, and expects another
// process of the hosted API server and no report of an outage.
func TestRestartDateRestartsTheAPIServer(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.sample(t, "restart")
	s.create(t)
	before := s.waitCluster(t, available)
	pids := s.servers(t)
	if len(pids) != 1 {
		t.Fatalf("hosted API servers: %v", pids)
	}
	for _, date := range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"} {
		s.annotate(hyperv1.RestartDateAnnotation, date)
		s.apply(t, s.cluster)
		eventually.Soon(t, "a new process of the hosted API server serves", func() error {
			now := s.servers(t)
			if len(now) != 1 || now[0] == pids[0] {
				return fmt.Errorf("hosted API servers: %v, before the restart: %v", now, pids)
			}
			_, err := s.nodesReady(t, 0)
			return err
		})

		pids = s.servers(t)
	}
	after := s.hostedCluster(t)
	availableBefore := meta.FindStatusCondition(before.Status.Conditions, string(hyperv1.HostedClusterAvailable))
	availableAfter := meta.FindStatusCondition(after.Status.Conditions, string(hyperv1.HostedClusterAvailable))
	if availableAfter == nil || availableAfter.Status != metav1.ConditionTrue || !availableAfter.LastTransitionTime.Equal(&availableBefore.LastTransitionTime) {
		t.Errorf("condition Available before the restarts: %+v, after: %+v", availableBefore, availableAfter)
	}
	if after.Status.ControlPlaneEndpoint != before.Status.ControlPlaneEndpoint {
		t.Errorf("endpoint before the restarts: %v, after: %v", before.Status.ControlPlaneEndpoint, after.Status.ControlPlaneEndpoint)
	}
	s.delete(t)
}

// TestLateNodeBecomesReady is a regression test for nodes that register before they are ready, as real ones do. The
// crdManager compared a node's new status with itself and never wrote it.
func TestLateNodeBecomesReady(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), func(o *Options) { withProcessFidelity(o); o.TimeScale = 0.005 }))
	s := m.sample(t, "late-nodes")
	s.createWithPool(t)
	s.waitCluster(t, available)
	eventually.Soon(t, "three nodes are ready", func() error {
		_, err := s.nodesReady(t, 3)
		return err
	})

	s.delete(t)
}

// TestHungHostedAPIServerIsRestarted stops a hosted API server with SIGSTOP: its kernel accepts connections, and it responds to
// nothing. The HostedCluster must not stay Available, and the server must be restarted.
func TestHungHostedAPIServerIsRestarted(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	// The clock of the probes stands still, so that a slow server does not count as hung.
	clock := clocktesting.NewFakeClock(time.Now())
	probes := hostedapi.Probes{Interval: time.Second, Timeout: 2 * time.Second, NotReadyFailures: 1, HungFailures: 3, Clock: clock}
	m.startRuntime(t, m.options(t.TempDir(), func(o *Options) { withProcessFidelity(o); o.Probes = probes }))
	s := m.available(t, "hung")
	before := s.servers(t)
	if len(before) != 1 {
		t.Fatalf("hosted API servers: %v", before)
	}
	must.Do(t, syscall.Kill(before[0], syscall.SIGSTOP))
	eventually.Soon(t, "the process is stopped", func() error {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(before[0]), "stat"))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("its state: %s", stat)
		}
		return err
	})
	// A step of the clock ends the pause before a probe, or a probe without a response.
	endWait := func(what string) {
		t.Helper()
		eventually.Soon(t, what, func() error {
			if !clock.HasWaiters() {
				return errors.New("nothing waits for the clock")
			}
			return nil
		})
		clock.Step(probes.Timeout)
	}
	for failure := range probes.HungFailures {
		endWait("the next probe is due")
		endWait("the probe is sent")
		if failure == 0 {
			s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
				if meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable)) {
					return errors.New("the HostedCluster is Available")
				}
				return nil
			})
		}
	}
	eventually.Soon(t, "another process replaces the hung one", func() error {
		if after := s.servers(t); len(after) != 1 || after[0] == before[0] {
			return fmt.Errorf("hosted API servers: %v, before: %v", after, before)
		}
		return nil
	})
	s.waitCluster(t, available)
	s.delete(t)
}
