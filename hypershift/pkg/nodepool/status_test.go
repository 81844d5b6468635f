package nodepool

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// clusterWithKubeconfig returns a cluster whose node pools get a configuration.
func clusterWithKubeconfig() *hyperv1.HostedCluster {
	return &hyperv1.HostedCluster{Status: hyperv1.HostedClusterStatus{KubeConfig: &corev1.LocalObjectReference{Name: "admin-kubeconfig"}}}
}

// TestConditionsWithoutNodes checks what a pool without machines reports, as far as the operator's pass gets.
func TestConditionsWithoutNodes(t *testing.T) {
	ready := func(hc *hyperv1.HostedCluster) {
		for _, kind := range []hyperv1.ConditionType{hyperv1.KubeAPIServerAvailable, hyperv1.IgnitionEndpointAvailable} {
			hc.Status.Conditions = append(hc.Status.Conditions, metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue})
		}
	}
	spec := []string{"AutoscalingEnabled=False", "ReconciliationActive=True", "SupportedVersionSkew=True", "UpdateManagementEnabled=True", "ValidArchPlatform=True", "ValidReleaseImage=True"}
	configured := append(slices.Clone(spec), "AllMachinesReady=False", "AllNodesHealthy=False", "ReachedIgnitionEndpoint=False", "UpdatingConfig=True", "UpdatingPlatformMachineTemplate=False",
		"UpdatingVersion=True", "ValidMachineConfig=True", "ValidPlatformConfig=True", "ValidTuningConfig=True")
	for name, tc := range map[string]struct {
		reason string
		change func(*hyperv1.HostedCluster)
		before []hyperv1.NodePoolCondition
		want   []string
	}{
		"no kubeconfig": {"the configuration of nodes needs the address of the API server", func(hc *hyperv1.HostedCluster) { hc.Status.KubeConfig = nil }, nil, spec},
		"kubeconfig":    {"the ignition server generates no payload yet", func(*hyperv1.HostedCluster) {}, nil, append(slices.Clone(configured), "Ready=False", "ValidGeneratedPayload=Unknown")},
		"API server":    {"no machine is created yet", ready, nil, append(slices.Clone(configured), "Ready=False", "ValidGeneratedPayload=True")},
		"outage": {"a generated payload stays", func(*hyperv1.HostedCluster) {}, []hyperv1.NodePoolCondition{{Type: hyperv1.NodePoolValidGeneratedPayloadConditionType, Status: corev1.ConditionTrue}},
			append(slices.Clone(configured), "Ready=False", "ValidGeneratedPayload=True")},
	} {
		t.Run(name, func(t *testing.T) {
			hc, pool := clusterWithKubeconfig(), &hyperv1.NodePool{}
			tc.change(hc)
			pool.Spec.Management.AutoRepair, pool.Status.Conditions = true, tc.before
			var got []string
			for _, c := range decide(pool, &observation{cluster: hc, release: &release.Release{}, target: target{replicas: 1, version: "4.20.15", autoRepair: true}}).Conditions {
				got = append(got, fmt.Sprintf("%s=%s", c.Type, c.Status))
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(tc.want)), slices.Sorted(slices.Values(got))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestIgnitionStaysReached checks that a pool that is scaled to zero keeps ReachedIgnitionEndpoint, and with it the repair of its next nodes.
func TestIgnitionStaysReached(t *testing.T) {
	pool := &hyperv1.NodePool{}
	pool.Status.Conditions = []hyperv1.NodePoolCondition{{Type: hyperv1.NodePoolReachedIgnitionEndpoint, Status: corev1.ConditionTrue}}
	status := decide(pool, &observation{cluster: clusterWithKubeconfig(), release: &release.Release{}})
	for _, c := range status.Conditions {
		if c.Type == hyperv1.NodePoolReachedIgnitionEndpoint && c.Status == corev1.ConditionTrue {
			return
		}
	}
	t.Errorf("the conditions are %+v", status.Conditions)
}

// TestConditionsOfMachines checks what a pool reports about its machines.
func TestConditionsOfMachines(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	const machineReady, ignition = 4 * time.Minute, 3 * time.Minute
	machine := func(name string, age time.Duration, version string, isReady bool) Machine {
		m := Machine{Name: name, Version: version, Kubelet: "v1", Created: now.Add(-age)}
		if isReady {
			m.Ready = m.Created.Add(5 * time.Minute)
		}
		return m
	}
	unhealthy := machine("old", time.Hour, "4.20.8", true)
	unhealthy.Unhealthy = now.Add(-time.Minute)
	draining := machine("old", time.Hour, "4.20.8", true)
	draining.Deleted = now
	tests := map[string]struct {
		reason   string
		machines []Machine
		// healthy is the reason of AllNodesHealthy. nodes are the nodes of 4.20.8 and 4.20.15.
		healthy                string
		nodes                  [2]int32
		ignited, repairEnabled bool
	}{
		"New":       {"no node has started", []Machine{machine("a", time.Minute, "4.20.15", false)}, "WaitingForNodeRef", [2]int32{}, false, false},
		"Ignited":   {"the first machine has fetched its configuration", []Machine{machine("a", ignition, "4.20.15", false)}, "WaitingForNodeRef", [2]int32{}, true, true},
		"Ready":     {"all nodes are ready", []Machine{machine("a", time.Hour, "4.20.15", true)}, hyperv1.AsExpectedReason, [2]int32{0, 1}, true, true},
		"Unhealthy": {"several reasons are joined", []Machine{unhealthy, machine("a", time.Minute, "4.20.15", false)}, "NodeConditionsFailed,WaitingForNodeRef", [2]int32{1, 0}, false, false},
		"Replaced":  {"no machine has fetched the new configuration", []Machine{machine("old", time.Hour, "4.20.8", true), machine("a", time.Minute, "4.20.15", false)}, "WaitingForNodeRef", [2]int32{1, 0}, false, false},
		"Drained":   {"a node is reported until it is removed", []Machine{draining, machine("a", time.Hour, "4.20.15", true)}, hyperv1.AsExpectedReason, [2]int32{1, 1}, true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &hyperv1.NodePool{}
			pool.Spec.Management.AutoRepair = true
			o := &observation{now: now, cluster: clusterWithKubeconfig(), release: &release.Release{}, machines: tc.machines, machineReady: machineReady, ignition: ignition,
				target: target{replicas: 1, version: "4.20.15", autoRepair: true}}
			status := decide(pool, o)
			conditions := map[string]hyperv1.NodePoolCondition{}
			for _, c := range status.Conditions {
				conditions[c.Type] = c
			}
			if got := conditions[hyperv1.NodePoolAllNodesHealthyConditionType].Reason; got != tc.healthy {
				t.Errorf("AllNodesHealthy has the reason %s, want %s: %s", got, tc.healthy, tc.reason)
			}
			if got := conditions[hyperv1.NodePoolReachedIgnitionEndpoint].Status == corev1.ConditionTrue; got != tc.ignited {
				t.Errorf("ReachedIgnitionEndpoint is %t, want %t: %s", got, tc.ignited, tc.reason)
			}
			if _, got := conditions[hyperv1.NodePoolAutorepairEnabledConditionType]; got != tc.repairEnabled {
				t.Errorf("AutorepairEnabled exists: %t, want %t: %s", got, tc.repairEnabled, tc.reason)
			}
			if got := conditions[hyperv1.NodePoolReconciliationActiveConditionType].Reason; got != "ReconciliationActive" {
				t.Errorf("ReconciliationActive has the reason %s", got)
			}
			var nodes [2]int32
			for _, v := range status.NodesInfo.NodeVersions {
				nodes[map[string]int{"4.20.8": 0, "4.20.15": 1}[v.OCPVersion]] += *v.ReadyNodeCount + *v.UnreadyNodeCount
			}
			if nodes != tc.nodes {
				t.Errorf("%v nodes are reported, want %v: %s", nodes, tc.nodes, tc.reason)
			}
		})
	}
}

// TestPausedPoolFollowsItsSpec checks that a paused pool reports a newer release and keeps what belongs to its MachineDeployment.
func TestPausedPoolFollowsItsSpec(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	pool := &hyperv1.NodePool{}
	o := &observation{now: now, cluster: clusterWithKubeconfig(), release: &release.Release{}, target: target{replicas: 1, version: "4.20.8"},
		machines: []Machine{{Name: "a", Version: "4.20.8", Created: now.Add(-time.Hour), Ready: now.Add(-time.Hour)}}}
	pool.Status = decide(pool, o)
	before := pool.Status.DeepCopy()
	pool.Generation, o.target.version, o.target.replicas = 2, "4.20.15", 3
	o.pause = contract.Pause{Active: true, Message: "Reconciliation paused until field removed"}
	pool.Status = decide(pool, o)
	again := decide(pool, o)
	if diff := cmp.Diff(pool.Status, again); diff != "" {
		t.Errorf("a second pass changes the status:\n%s", diff)
	}
	find := func(status *hyperv1.NodePoolStatus, kind string) hyperv1.NodePoolCondition {
		for _, c := range status.Conditions {
			if c.Type == kind {
				return c
			}
		}
		t.Fatalf("no condition %s", kind)
		return hyperv1.NodePoolCondition{}
	}
	if c := find(&pool.Status, hyperv1.NodePoolReconciliationActiveConditionType); c.Status != corev1.ConditionFalse || c.Reason != hyperv1.ReconciliationPausedConditionReason {
		t.Errorf("ReconciliationActive is %+v", c)
	}
	if c := find(&pool.Status, hyperv1.NodePoolUpdatingVersionConditionType); c.Status != corev1.ConditionTrue || c.ObservedGeneration != 2 {
		t.Errorf("UpdatingVersion is %+v", c)
	}
	if diff := cmp.Diff(find(before, hyperv1.NodePoolReadyConditionType), find(&pool.Status, hyperv1.NodePoolReadyConditionType)); diff != "" || pool.Status.Version != "4.20.8" {
		t.Errorf("Ready changes, or the version, which is %s:\n%s", pool.Status.Version, diff)
	}
}

// TestVersionOfControlPlane checks that nodes are compared with the newest completed version of the control plane.
func TestVersionOfControlPlane(t *testing.T) {
	catalog, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	hc := &hyperv1.HostedCluster{}
	hc.Status.Version = &hyperv1.ClusterVersionStatus{}
	for i, version := range []string{"4.20.15", "4.20.8"} {
		known, _ := catalog.Exact(version)
		hc.Status.Version.History = append(hc.Status.Version.History, configv1.UpdateHistory{State: []configv1.UpdateState{configv1.PartialUpdate, configv1.CompletedUpdate}[i], Image: known.Image})
	}
	r := &Reconciler{Releases: catalog}
	if got := r.clusterRelease(hc); got == nil || got.Version.String() != "4.20.8" {
		t.Errorf("during an upgrade it is %v", got)
	}
	hc.Status.Version.History = hc.Status.Version.History[:1]
	if got := r.clusterRelease(hc); got == nil || got.Version.String() != "4.20.15" {
		t.Errorf("during the creation it is %v", got)
	}
}

// TestMinimumOfZero checks that an autoscaled pool has a node even if its minimum is 0.
func TestMinimumOfZero(t *testing.T) {
	pool := &hyperv1.NodePool{}
	pool.Spec.AutoScaling = &hyperv1.NodePoolAutoScaling{Min: new(int32), Max: 3}
	pool.Annotations = map[string]string{contract.AutoscaleAnnotation: "0"}
	if got := replicas(pool); got != 1 {
		t.Errorf("%d nodes", got)
	}
}

// TestUpdatingConfigIgnoresProxy checks that a change of the proxy or of the image configuration replaces nodes without the condition UpdatingConfig.
func TestUpdatingConfigIgnoresProxy(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	hc, pool := clusterWithKubeconfig(), &hyperv1.NodePool{}
	annotate(pool, hc)
	before := configHash(pool, hc)
	updating := func() bool {
		o := &observation{now: now, cluster: hc, release: &release.Release{}, target: target{replicas: 1, version: "4.20.8", config: configHash(pool, hc)},
			machines: []Machine{{Name: "a", Version: "4.20.8", Config: before, Created: now.Add(-time.Hour), Ready: now.Add(-time.Hour)}}}
		pool.Status = decide(pool, o)
		for _, c := range pool.Status.Conditions {
			if c.Type == hyperv1.NodePoolUpdatingConfigConditionType {
				return c.Status == corev1.ConditionTrue
			}
		}
		t.Fatal("no condition UpdatingConfig")
		return false
	}
	if updating() {
		t.Error("nothing has changed")
	}
	hc.Spec.Configuration = &hyperv1.ClusterConfiguration{Proxy: &configv1.ProxySpec{HTTPProxy: "http://proxy.example"}}
	if configHash(pool, hc) == before || updating() {
		t.Error("a changed proxy replaces no nodes, or is reported")
	}
	hc.Spec.ImageContentSources = []hyperv1.ImageContentSource{{Source: "a", Mirrors: []string{"b"}}}
	if !updating() {
		t.Error("changed mirrors are not reported")
	}
}
