package hostedcluster

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/release"
	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs from the decisions (-want +got):\n%s", path, diff)
	}
}

// decisionRun makes the decisions of one cluster on virtual time, without a management cluster.
type decisionRun struct {
	hc    *hyperv1.HostedCluster
	hcp   *hyperv1.HostedControlPlane
	r     *Reconciler
	began time.Time
	nodes int
	out   strings.Builder
	last  map[string]string
}

func newDecisionRun(t *testing.T, version string) *decisionRun {
	t.Helper()
	catalog, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	l := &decisionRun{r: &Reconciler{Releases: catalog, Scale: 1}, began: time.Now(), last: map[string]string{}}
	l.hc = &hyperv1.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hc", Generation: 1, CreationTimestamp: metav1.Now()}}
	l.hc.Spec.Release.Image = imageOf(t, catalog, version)
	l.hc.Spec.Channel = "stable-4.22"
	l.hc.Spec.KubeAPIServerDNSName = "api.hc.example.com"
	l.hc.Spec.Services = []hyperv1.ServicePublishingStrategyMapping{
		{Service: hyperv1.APIServer, ServicePublishingStrategy: hyperv1.ServicePublishingStrategy{Type: hyperv1.Route, Route: &hyperv1.RoutePublishingStrategy{Hostname: "api-int.hc.example.com"}}},
		{Service: hyperv1.Ignition, ServicePublishingStrategy: hyperv1.ServicePublishingStrategy{Type: hyperv1.Route, Route: &hyperv1.RoutePublishingStrategy{Hostname: "ignition.hc.example.com"}}},
		{Service: hyperv1.OAuthServer, ServicePublishingStrategy: hyperv1.ServicePublishingStrategy{Type: hyperv1.Route, Route: &hyperv1.RoutePublishingStrategy{Hostname: "oauth.hc.example.com"}}},
	}
	return l
}

func imageOf(t *testing.T, catalog *release.Catalog, version string) string {
	t.Helper()
	r, known := catalog.Exact(version)
	if !known {
		t.Fatalf("the catalogue has no %s", version)
	}
	return r.Image
}

// pass makes the decisions of one pass and returns the time until the next one.
func (l *decisionRun) pass(t *testing.T) time.Duration {
	t.Helper()
	o := &observation{Now: time.Now(), ReadyNodes: l.nodes}
	o.Faults, _ = contract.ParseFaults(l.hc.Annotations)
	o.Desired, _ = l.r.Releases.Lookup(l.hc.Spec.Release.Image)
	phase, wait := l.r.Scale.PhaseAfter(time.Since(l.began))
	if l.hcp == nil && phase < schedule.Infrastructure {
		l.hc.Status = decide(l.hc, nil, o)
		l.record()
		return wait
	}
	if l.hcp == nil {
		l.hcp = &hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-hc", Name: "hc", Generation: 1}}
		l.hcp.Spec.ReleaseImage = l.hc.Spec.Release.Image
	}
	o.Phase = phase
	if err := l.r.decideRelease(l.hcp, l.hc, o); err != nil {
		t.Fatal(err)
	}
	if o.Installing == o.Desired {
		l.hcp.Spec.ReleaseImage = l.hc.Spec.Release.Image
	}
	o.Endpoint = hyperv1.APIEndpoint{Host: l.hc.Spec.KubeAPIServerDNSName, Port: 443}
	o.Kubeconfig, o.KubeadminPassword, o.CustomKubeconfig = phase > schedule.Kubeconfig, phase > schedule.Kubeconfig && hasPassword(l.hc, l.hcp), phase > schedule.Kubeconfig
	more := l.r.decideRollout(l.hc, l.hcp, contract.FidelityStatus, o)
	l.hcp.Status = decideControlPlane(l.hc, l.hcp, o)
	l.hc.Status = decide(l.hc, l.hcp, o)
	l.record()
	return schedule.ShorterWait(wait, more)
}

// record appends the changes to the output.
func (l *decisionRun) record() {
	now := map[string]string{}
	for _, c := range l.hc.Status.Conditions {
		now[c.Type] = fmt.Sprintf("%s %s %q", c.Status, c.Reason, c.Message)
	}
	for i, h := range l.hc.Status.Version.History {
		now[fmt.Sprintf("version.history[%d]", len(l.hc.Status.Version.History)-1-i)] = fmt.Sprintf("%s %s", h.State, h.Version)
	}
	for i, h := range l.hc.Status.ControlPlaneVersion.History {
		now[fmt.Sprintf("controlPlaneVersion.history[%d]", len(l.hc.Status.ControlPlaneVersion.History)-1-i)] = fmt.Sprintf("%s %s ended=%v", h.State, h.Version, !h.CompletionTime.IsZero())
	}
	if l.hc.Status.ControlPlaneEndpoint.Host != "" {
		now["controlPlaneEndpoint"] = fmt.Sprintf("%s:%d", l.hc.Status.ControlPlaneEndpoint.Host, l.hc.Status.ControlPlaneEndpoint.Port)
	}
	if l.hc.Status.KubeConfig != nil {
		now["kubeconfig"] = l.hc.Status.KubeConfig.Name
	}
	var lines []string
	for key, value := range now {
		if l.last[key] != value {
			lines = append(lines, "  "+key+": "+value+"\n")
		}
	}
	if len(lines) > 0 {
		slices.Sort(lines)
		fmt.Fprintf(&l.out, "+%s\n%s", time.Since(l.began), strings.Join(lines, ""))
	}
	l.last = now
}

// run repeats the decision until it waits for nothing. It runs in a synctest bubble.
func (l *decisionRun) run(t *testing.T) {
	t.Helper()
	for range 100 {
		wait := l.pass(t)
		if wait == 0 {
			return
		}
		time.Sleep(wait)
	}
	t.Fatal("the cluster does not converge")
}

// TestConditionSequence compares every condition of a creation, of the first nodes and of an upgrade, and its time,
// with a golden file.
func TestConditionSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDecisionRun(t, "4.21.1")
		l.run(t)
		l.nodes = 3
		l.run(t)
		l.hc.Generation++
		l.hc.Spec.Release.Image = imageOf(t, l.r.Releases, "4.22.0")
		l.run(t)
		golden(t, "lifecycle.golden", l.out.String())
	})
}

// TestAvailableDoesNotFlap checks that Available becomes True once in a creation and remains True in an upgrade.
func TestAvailableDoesNotFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDecisionRun(t, "4.20.8")
		flips, was := 0, false
		pass := func() time.Duration {
			wait := l.pass(t)
			if is := findCondition(l.hc.Status.Conditions, hyperv1.HostedClusterAvailable).isTrue(); is != was {
				flips, was = flips+1, is
			}
			return wait
		}
		for wait := pass(); wait > 0; wait = pass() {
			time.Sleep(wait)
		}
		if len(l.hc.Status.ControlPlaneVersion.History) != 0 {
			t.Errorf("4.20.8 does not report a control-plane version, but: %+v", l.hc.Status.ControlPlaneVersion)
		}
		l.hc.Spec.Release.Image = imageOf(t, l.r.Releases, "4.20.15")
		for wait := pass(); wait > 0; wait = pass() {
			time.Sleep(wait)
		}
		if flips != 1 || !was {
			t.Errorf("Available changed %d times and is %v", flips, was)
		}
	})
}

func TestRefusedUpgrades(t *testing.T) {
	cases := map[string]struct {
		reason, to string
		force      bool
		blocked    string
		fault      contract.Fault
	}{
		"NotReady": {reason: "the cluster is not upgradeable", to: "4.21.1", fault: contract.FaultNotUpgradeable,
			blocked: "cannot upgrade from 4.20.8 to 4.21.1: the cluster version is not upgradeable: This cluster has APIs in use that the next minor version takes away; an administrator must acknowledge that."},
		"NotReadyPatch": {reason: "the condition applies only to minor versions", to: "4.20.15", fault: contract.FaultNotUpgradeable},
		"NotReadyForce": {reason: "the annotation forces the upgrade", to: "4.21.1", force: true, fault: contract.FaultNotUpgradeable},
		"Patch":         {reason: "a newer patch is always possible", to: "4.20.15"},
		"Minor":         {reason: "the next minor is possible", to: "4.21.1"},
		"SkipMinor":     {reason: "minor versions must not be skipped", to: "4.22.0", blocked: "cannot upgrade from 4.20.8 to 4.22.0: minor versions must not be skipped"},
		"ForcedSkip":    {reason: "the annotation forces the upgrade", to: "4.22.0", force: true},
		"Downgrade":     {reason: "downgrades are not supported", to: "4.19.20", blocked: "cannot downgrade from 4.20.8 to 4.19.20"},
		"ForcedDown":    {reason: "the annotation does not allow downgrades", to: "4.19.20", force: true, blocked: "cannot downgrade from 4.20.8 to 4.19.20"},
		"Unavailable":   {reason: "an unknown image is not installed", to: "", blocked: "ValidReleaseImage condition is false"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newDecisionRun(t, "4.20.8")
				l.hc.Annotations = map[string]string{contract.FaultAnnotation: string(c.fault)}
				l.run(t)
				l.hc.Spec.Release.Image = "quay.io/example/unknown:latest"
				if c.to != "" {
					l.hc.Spec.Release.Image = imageOf(t, l.r.Releases, c.to)
				}
				if c.force {
					l.hc.Annotations[hyperv1.ForceUpgradeToAnnotation] = l.hc.Spec.Release.Image
				}
				l.run(t)
				progressing := findCondition(l.hc.Status.Conditions, hyperv1.HostedClusterProgressing)
				want, wantReason := "4.20.8", hyperv1.BlockedReason
				if c.blocked == "" {
					want, wantReason = c.to, hyperv1.AsExpectedReason
				}
				if got := l.hc.Status.Version.History[0].Version; got != want || progressing.Reason != wantReason {
					t.Errorf("%s: runs %s, Progressing %s: %s", c.reason, got, progressing.Reason, progressing.Message)
				}
				if c.blocked != "" && progressing.Message != c.blocked {
					t.Errorf("%s: message %q", c.reason, progressing.Message)
				}
				if !findCondition(l.hc.Status.Conditions, hyperv1.HostedClusterAvailable).isTrue() {
					t.Errorf("%s: not available any more", c.reason)
				}
			})
		})
	}
}

func TestFaults(t *testing.T) {
	cases := map[contract.Fault]struct {
		condition hyperv1.ConditionType
		status    metav1.ConditionStatus
		reason    string
	}{
		contract.FaultEtcdQuorumLoss:    {hyperv1.HostedClusterAvailable, metav1.ConditionFalse, hyperv1.EtcdWaitingForQuorumReason},
		contract.FaultDegraded:          {hyperv1.HostedClusterDegraded, metav1.ConditionTrue, "UnavailableReplicas"},
		contract.FaultConditionsUnknown: {hyperv1.EtcdAvailable, metav1.ConditionUnknown, hyperv1.StatusUnknownReason},
		contract.FaultComponentsStuck:   {hyperv1.HostedClusterAvailable, metav1.ConditionFalse, hyperv1.ControlPlaneComponentsNotAvailable},
	}
	for fault, c := range cases {
		t.Run(string(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newDecisionRun(t, "4.20.8")
				l.hc.Annotations = map[string]string{contract.FaultAnnotation: string(fault)}
				l.run(t)
				if got := findCondition(l.hc.Status.Conditions, c.condition); got.Status != c.status || got.Reason != c.reason {
					t.Errorf("%s is %s %s", c.condition, got.Status, got.Reason)
				}
				delete(l.hc.Annotations, contract.FaultAnnotation)
				l.run(t)
				if !findCondition(l.hc.Status.Conditions, hyperv1.HostedClusterAvailable).isTrue() {
					t.Error("the cluster does not recover")
				}
			})
		})
	}
}

func TestComponentsAreConsistent(t *testing.T) {
	names := map[string]bool{}
	for i, c := range components {
		if names[c.name] {
			t.Errorf("component %s appears twice", c.name)
		}
		names[c.name] = true
		if i > 0 && components[i-1].name > c.name {
			t.Errorf("component %s is out of order", c.name)
		}
		if !slices.Contains(release.ControlPlaneComponents(), c.name) {
			t.Errorf("component %s is not in release.ControlPlaneComponents", c.name)
		}
	}
	for wave := schedule.WaveFoundation; wave <= schedule.WaveOperators; wave++ {
		complete := rollout{wave: wave, fidelity: contract.FidelityProcess}.complete()
		if waiting := (rollout{wave: wave, fidelity: contract.FidelityProcess}).unavailable(); complete != (len(waiting) == 0) {
			t.Errorf("wave %d: complete %v, but waiting for %v", wave, complete, waiting)
		}
	}
}

// TestUpgradeRollsOutOneComponentAtATime checks that a component is upgraded after its dependencies, and reports until
// then that it waits.
func TestUpgradeRollsOutOneComponentAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rollout{version: "4.21.4", previous: "4.20.16", fidelity: contract.FidelityProcess}
		began, before := time.Now(), 0
		for {
			var wait time.Duration
			r.wave, r.nextWaveDone, wait = schedule.Scale(1).Upgrade(time.Since(began), r.waveSize)
			states := map[string]hyperv1.ControlPlaneComponentStatus{}
			count := 0
			for _, c := range r.desiredComponents() {
				states[c.name] = r.status(c, metav1.Now(), hyperv1.ControlPlaneComponentStatus{})
				if states[c.name].Version == "4.21.4" {
					count++
				}
				if !meta.IsStatusConditionTrue(states[c.name].Conditions, string(hyperv1.ControlPlaneComponentAvailable)) {
					t.Errorf("after %s %s is not available", time.Since(began), c.name)
				}
			}
			if count < before || count > before+1 {
				t.Errorf("after %s %d components run the version, %d before", time.Since(began), count, before)
			}
			for name, after := range map[string]string{etcdComponent: "cluster-api", "kube-apiserver": etcdComponent, "kube-scheduler": "kube-apiserver", "dns-operator": "openshift-apiserver"} {
				if states[name].Version == "4.21.4" && states[after].Version != "4.21.4" {
					t.Errorf("after %s %s runs the version before %s", time.Since(began), name, after)
				}
			}
			reason := meta.FindStatusCondition(states["dns-operator"].Conditions, string(hyperv1.ControlPlaneComponentRolloutComplete)).Reason
			if waits := states["kube-apiserver"].Version != "4.21.4"; waits && reason != hyperv1.WaitingForDependenciesReason {
				t.Errorf("after %s dns-operator, which waits, has reason %s", time.Since(began), reason)
			}
			if before = count; wait == 0 {
				break
			}
			time.Sleep(wait)
		}
		if before != len(r.desiredComponents()) || !r.complete() {
			t.Errorf("at the end %d of %d components run the version", before, len(r.desiredComponents()))
		}
	})
}

// TestPausedCluster checks that the status of a paused cluster continues to follow its control plane.
func TestPausedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDecisionRun(t, "4.20.8")
		l.run(t)
		o := &observation{Now: time.Now(), Desired: l.lookup(t), Installing: l.lookup(t), Phase: schedule.Done, Pause: contract.Pause{Active: true, Message: "Reconciliation paused until field removed"}}
		o.Faults, _ = contract.ParseFaults(map[string]string{contract.FaultAnnotation: string(contract.FaultEtcdQuorumLoss)})
		l.hc.Generation++
		l.hcp.Status = decideControlPlane(l.hc, l.hcp, o)
		status := decide(l.hc, l.hcp, o)
		for kind, want := range map[hyperv1.ConditionType][2]string{
			hyperv1.ReconciliationActive:     {"False", hyperv1.ReconciliationPausedConditionReason},
			hyperv1.HostedClusterProgressing: {"False", hyperv1.BlockedReason},
			hyperv1.HostedClusterAvailable:   {"False", hyperv1.EtcdWaitingForQuorumReason},
			hyperv1.ReconciliationSucceeded:  {"True", "ReconciliatonSucceeded"},
		} {
			c := findCondition(status.Conditions, kind)
			if string(c.Status) != want[0] || c.Reason != want[1] || c.ObservedGeneration != l.hc.Generation {
				t.Errorf("%s is %+v, want %v", kind, *c, want)
			}
		}
	})
}

// lookup returns the release of the spec.
func (l *decisionRun) lookup(t *testing.T) *release.Release {
	t.Helper()
	known, err := l.r.Releases.Lookup(l.hc.Spec.Release.Image)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// TestReasonsOfOperator checks reasons and conditions that are as in the source of the operator.
func TestReasonsOfOperator(t *testing.T) {
	hc := &hyperv1.HostedCluster{}
	status := decide(hc, nil, &observation{Problem: errors.New("a secret is missing")})
	if c := findCondition(status.Conditions, hyperv1.ReconciliationSucceeded); c.Reason != "ReconciliationError" {
		t.Errorf("the reason of an error is %s", c.Reason)
	}
	if c := findCondition(status.Conditions, hyperv1.ClusterVersionRetrievedUpdates); c != nil {
		t.Errorf("%+v, want no condition before the cluster-version operator runs", *c)
	}
	component := rollout{version: "4.21.4", wave: -1}.status(components[0], metav1.Now(), hyperv1.ControlPlaneComponentStatus{})
	if c := findCondition(component.Conditions, hyperv1.ControlPlaneComponentAvailable); c.Reason != "NotFound" {
		t.Errorf("the reason of a component without a workload is %s", c.Reason)
	}
	hc.Spec.SecretEncryption = &hyperv1.SecretEncryptionSpec{KMS: &hyperv1.KMSSpec{Azure: &hyperv1.AzureKMSSpec{KeyVaultAccess: hyperv1.AzureKeyVaultPrivate}}}
	var list []metav1.Condition
	decideKMS(conditions{list: &list}, hc, &observation{})
	if c := findCondition(list, hyperv1.ValidAzureKMSConfig); c.Status != metav1.ConditionFalse || c.Reason != hyperv1.AzureErrorReason {
		t.Errorf("a key in a private vault is %s %s", c.Status, c.Reason)
	}
}

// TestRemovedAnnotations checks that an annotation that was removed from a HostedCluster is removed from its HostedControlPlane.
func TestRemovedAnnotations(t *testing.T) {
	hc, hcp := &hyperv1.HostedCluster{}, &hyperv1.HostedControlPlane{}
	hcp.Annotations = map[string]string{contract.HostedClusterAnnotation: "ns/hc"}
	hc.Annotations = map[string]string{hyperv1.RestartDateAnnotation: "now"}
	fillControlPlane(hcp, hc)
	if hcp.Annotations[hyperv1.RestartDateAnnotation] != "now" {
		t.Errorf("the annotation is not copied: %v", hcp.Annotations)
	}
	hc.Annotations = nil
	fillControlPlane(hcp, hc)
	if len(hcp.Annotations) != 1 {
		t.Errorf("annotations %v remain", hcp.Annotations)
	}
}

// TestExternalAuthenticationReplacesOAuth checks that a control plane with external authentication has no OAuth server, and keeps the password that it
// has.
func TestExternalAuthenticationReplacesOAuth(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newDecisionRun(t, "4.20.8")
			if before {
				l.run(t)
			}
			l.hc.Spec.Configuration = &hyperv1.ClusterConfiguration{Authentication: &configv1.AuthenticationSpec{Type: configv1.AuthenticationTypeOIDC}}
			l.run(t)
			if has := l.hcp.Status.KubeadminPassword != nil; has != before {
				t.Errorf("a password before: %t, and afterwards: %t", before, has)
			}
			if has := l.hc.Status.OAuthCallbackURLTemplate != ""; has != before {
				t.Errorf("a callback before: %t, and afterwards: %t", before, has)
			}
		})
	}
	for _, c := range (rollout{fidelity: contract.FidelityProcess, externalOIDC: true}).desiredComponents() {
		if strings.Contains(c.name, "oauth") {
			t.Errorf("%s exists", c.name)
		}
	}
}
