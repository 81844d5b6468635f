package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

var azureDay = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// inAzure returns a placed cluster in a region where clusters have Azure resources.
func inAzure(t *testing.T) (Region, *ClusterAggregate) {
	t.Helper()
	r := Region{BaseDomain: "example.com", IssuerBase: "https://oidc.example.com", AzureKinds: AzureKinds()}
	aggregate := &ClusterAggregate{Cluster: &Cluster{UID: "u", Shard: "mgmt-1", Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{ClusterId: "c", BaseDomainPrefix: "p"}},
		Works: []*Work{{ID: "1", Kind: HostedCluster}, {ID: "2", Kind: Namespaces}}}
	r.planAzure(azureDay, aggregate)
	if got := dueKinds(aggregate.Azure); !slices.Equal(got, []AzureKind{AzureIdentities}) || len(aggregate.Azure.Steps) != 1 || r.azureReady(aggregate) {
		t.Fatalf("Azure steps before the HostedCluster is applied: %v", aggregate.Azure.Steps)
	}
	input, _ := r.AzureInput(aggregate, AzureIdentities)
	aggregate.Azure.Record(azureDay, AzureOutcome{Kind: AzureIdentities, Done: true, Input: input})
	if r.azureReady(aggregate) {
		t.Fatal("the cluster is ready in Azure before its other steps are planned")
	}
	aggregate.Works[0].Observed.Applied.Status = "True"
	r.planAzure(azureDay, aggregate)
	return r, aggregate
}

// outcomeOf returns the outcome of a successful step, with an expiration time for the certificate.
func outcomeOf(kind AzureKind, input string) AzureOutcome {
	o := AzureOutcome{Kind: kind, Done: true, Input: input}
	if kind == AzureCertificate || kind == AzureCredentials {
		o.Expires, o.Renew = azureDay.AddDate(0, 0, 90), azureDay.AddDate(0, 0, 60)
	}
	return o
}

func dueKinds(a *Azure) (kinds []AzureKind) {
	for _, s := range a.Steps {
		if s.Due {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// TestAzureStepsRunInOrderOfDependencies runs all steps of the creation, and all steps of the deletion in reverse order.
func TestAzureStepsRunInOrderOfDependencies(t *testing.T) {
	r, aggregate := inAzure(t)
	first := []AzureKind{AzureIdentities, AzureResourceGroup, AzureSecurityGroup, AzureRoles, AzureRequirements, AzureFederation, AzureCredentials, AzureCertificate}
	if got := dueKinds(aggregate.Azure); !slices.Equal(got, first) {
		t.Errorf("due at first are %v, want %v", got, first)
	}
	aggregate.Cluster.SigningKey = []byte("sealed")
	aggregate.Works[0].Observed.EndpointHost = "192.0.2.1"
	var made []AzureKind
	for {
		r.planAzure(azureDay, aggregate)
		step := aggregate.Azure.Next(azureDay, nil)
		if step == nil {
			break
		}
		if r.azureReady(aggregate) {
			t.Fatal("the cluster is reported ready before the last step")
		}
		input, _ := r.AzureInput(aggregate, step.Kind)
		made = append(made, step.Kind)
		aggregate.Azure.Record(azureDay, outcomeOf(step.Kind, input))
	}
	if !slices.Equal(made, AzureKinds()[1:]) || !r.azureReady(aggregate) {
		t.Errorf("made %v, want %v", made, AzureKinds()[1:])
	}

	aggregate.Works[0].Observed.EndpointHost = "192.0.2.2"
	r.planAzure(azureDay, aggregate)
	if got := dueKinds(aggregate.Azure); !slices.Equal(got, []AzureKind{AzureIdentities, AzureCredentials, AzureCertificate, AzureAPIRecord, AzureServiceRecords}) {
		t.Errorf("due with another endpoint are %v, want the records", got)
	}

	aggregate.Cluster.DeleteTime = azureDay
	r.planAzure(azureDay, aggregate)
	if aggregate.Azure.Deleting || len(dueKinds(aggregate.Azure)) > 0 {
		t.Error("Azure steps are due while the HostedCluster of a deleted cluster exists")
	}
	aggregate.Works = aggregate.Works[1:]
	var removed []AzureKind
	for {
		r.planAzure(azureDay, aggregate)
		step := aggregate.Azure.Next(azureDay, nil)
		if step == nil {
			break
		}
		removed = append(removed, step.Kind)
		aggregate.Azure.Record(azureDay, AzureOutcome{Kind: step.Kind, Undo: true, Done: true})
	}
	want := AzureKinds()
	slices.Reverse(want)
	if !slices.Equal(removed, want) || len(aggregate.Azure.Steps) > 0 {
		t.Errorf("removed %v, want %v", removed, want)
	}
}

// TestFailedAzureStepBlocksDependentsOnly fails a step of the creation and a step of the deletion.
func TestFailedAzureStepBlocksDependentsOnly(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Azure.Record(azureDay, AzureOutcome{Kind: AzureResourceGroup, Error: "Azure answered 500"})
	r.planAzure(azureDay, aggregate)
	if got := aggregate.Azure.Next(azureDay, nil); got.Kind != AzureSecurityGroup {
		t.Errorf("next is %v, want a step that does not depend on the group", got.Kind)
	}
	if got := aggregate.Azure.Next(azureDay.Add(azureFirstRetry), nil); got.Kind != AzureResourceGroup {
		t.Errorf("next after a while is %v, want the group again", got.Kind)
	}
	layers := aggregate.azureLayers()
	if len(layers) != 1 || layers[0].state != "RetryingResourceGroup" || !strings.Contains(layers[0].message, "Attempt 1 failed: Azure answered 500") {
		t.Errorf("progress is %v", layers)
	}

	aggregate.Cluster.DeleteTime, aggregate.Works = azureDay, nil
	for now := azureDay; ; {
		r.planAzure(now, aggregate)
		step := aggregate.Azure.Next(now, map[AzureKind]bool{AzureDNSDelegation: true})
		if step == nil {
			break
		}
		aggregate.Azure.Record(now, AzureOutcome{Kind: step.Kind, Undo: true, Done: true})
	}
	var left []AzureKind
	for _, s := range aggregate.Azure.Steps {
		left = append(left, s.Kind)
	}
	if want := []AzureKind{AzureDNSDelegation, AzureDNSZone, AzureResourceGroup}; !slices.Equal(left, want) {
		t.Errorf("with the delegation stuck %v are left, want %v", left, want)
	}
}

func TestAzureRetries(t *testing.T) {
	tests := map[string]struct {
		reason   string
		outcomes []AzureOutcome
		want     time.Duration
	}{
		"First":     {"the first retry comes soon", []AzureOutcome{{Error: "x"}}, azureFirstRetry},
		"Third":     {"each waits twice as long", []AzureOutcome{{Error: "x"}, {Error: "x"}, {Error: "x"}}, 4 * azureFirstRetry},
		"Last":      {"no longer than a minute", slices.Repeat([]AzureOutcome{{Error: "x"}}, 40), azureLastRetry},
		"Asked":     {"Retry-After of Azure is used", []AzureOutcome{{Error: "x", RetryAfter: 90 * time.Second}}, 90 * time.Second},
		"TooLong":   {"up to a limit", []AzureOutcome{{Error: "x", RetryAfter: 24 * time.Hour}}, azureLongest},
		"UnderWay":  {"an operation in progress is polled soon", []AzureOutcome{{Awaited: "Azure"}}, azurePatience},
		"LongUnder": {"a long operation is polled less often", slices.Repeat([]AzureOutcome{{Awaited: "Azure"}}, 100), azureLongPatience},
		"Decided":   {"a decision has no delay", []AzureOutcome{{Facts: map[string]string{"a": "b"}}}, 0},
		"Recovered": {"a success resets the count of failures", []AzureOutcome{{Error: "x"}, {Error: "x"}, {Awaited: "Azure"}, {Error: "x"}}, azureFirstRetry},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, aggregate := inAzure(t)
			for _, o := range tc.outcomes {
				o.Kind = AzureCertificate
				aggregate.Azure.Record(azureDay, o)
			}
			wait := time.Duration(0)
			if at := aggregate.Azure.Step(AzureCertificate).RetryTime; !at.IsZero() {
				wait = at.Sub(azureDay)
			}
			if wait != tc.want {
				t.Errorf("%s: waits %v, want %v", tc.reason, wait, tc.want)
			}
		})
	}
}

// TestCertificateIsRenewedBeforeItExpires checks that a certificate is renewed in time, that failed renewals are retried at
// decreasing intervals, and that a failing renewal affects neither the cluster nor the current certificate.
func TestCertificateIsRenewedBeforeItExpires(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Cluster.SigningKey, aggregate.Works[0].Observed.EndpointHost = []byte("sealed"), "192.0.2.1"
	r.planAzure(azureDay, aggregate)
	for step := aggregate.Azure.Next(azureDay, nil); step != nil; step = aggregate.Azure.Next(azureDay, nil) {
		input, _ := r.AzureInput(aggregate, step.Kind)
		aggregate.Azure.Record(azureDay, outcomeOf(step.Kind, input))
		r.planAzure(azureDay, aggregate)
	}
	certificate := aggregate.Azure.Step(AzureCertificate)
	renew, ends := certificate.Renew, certificate.Expires
	// The identities are read, and their credentials checked, more often than the certificate is renewed.
	aggregate.Azure.Step(AzureIdentities).RetryTime, aggregate.Azure.Step(AzureCredentials).RetryTime = ends, ends
	if at, due := aggregate.Azure.DueTime(); !due || !at.Equal(renew) {
		t.Fatalf("the next step is due at %v, want the renewal at %v", at, renew)
	}
	if firstEnd, overdue := aggregate.Azure.Expiry(); !firstEnd.Equal(ends) || !overdue.Equal(azureDay.AddDate(0, 0, 75)) {
		t.Errorf("the first ends at %v and is overdue from %v", firstEnd, overdue)
	}
	if aggregate.Azure.Next(renew.Add(-time.Second), nil) != nil {
		t.Error("a step is due before the renewal time")
	}
	now, tries, longest := renew, 0, time.Duration(0)
	for now.Before(ends.Add(-time.Hour)) {
		step := aggregate.Azure.Next(now, nil)
		if step != certificate {
			t.Fatalf("next at %v is %v", now, step)
		}
		aggregate.Azure.Record(now, AzureOutcome{Kind: AzureCertificate, Error: "Azure answered 403"})
		r.planAzure(now, aggregate)
		if !r.azureReady(aggregate) || !certificate.Done {
			t.Fatal("a failed renewal changed the state of the cluster or the step")
		}
		at, _ := aggregate.Azure.DueTime()
		wait := at.Sub(now)
		longest = max(longest, wait)
		if left := ends.Sub(now); wait > max(azureLastRetry, left/100) {
			t.Fatalf("with %v left it waits %v", left, wait)
		}
		now = at
		tries++
	}
	if longest != azureLastRenewal || tries > 3000 {
		t.Errorf("%d tries, at most %v apart", tries, longest)
	}
	layers := aggregate.azureLayers()
	if len(layers) != 1 || layers[0].state != clusterstatus.StateRenewalFailing || !strings.Contains(layers[0].message, "renew the API server's certificate, which expires at 2026-05-30T12:00:00Z, failed: Azure answered 403") {
		t.Errorf("progress is %v", layers)
	}
	aggregate.Azure.Record(now, AzureOutcome{Kind: AzureCertificate, Done: true, Expires: now.AddDate(0, 0, 90), Renew: now.AddDate(0, 0, 60),
		Facts: map[string]string{AzureCertificateVersion: "2", AzureCertificateRenewed: "2"}})
	r.planAzure(now, aggregate)
	if layers := aggregate.azureLayers(); len(layers) != 1 || layers[0].state != "Ready" || aggregate.RenewedCertificate() != "2" {
		t.Errorf("renewed, the progress is %v and the version %q", layers, aggregate.RenewedCertificate())
	}
	// An earlier release did not store the expiration time of a certificate: the step is due and reads it.
	certificate.Expires, certificate.Renew, certificate.RetryTime = time.Time{}, time.Time{}, time.Time{}
	r.planAzure(now, aggregate)
	if aggregate.Azure.Next(now, nil) != certificate || !r.azureReady(aggregate) {
		t.Error("a certificate without a stored expiration time is not read")
	}
	aggregate.Cluster.DeleteTime = now
	r.planAzure(now, aggregate)
	if len(dueKinds(aggregate.Azure)) > 0 {
		t.Error("the certificate of a cluster that is being deleted is due for renewal")
	}
}

// TestCreationOutcomeDuringDeletionIsUndone records the outcome of a creation step that started before the deletion.
func TestCreationOutcomeDuringDeletionIsUndone(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Cluster.DeleteTime, aggregate.Works = azureDay, nil
	r.planAzure(azureDay, aggregate)
	aggregate.Azure.Record(azureDay, AzureOutcome{Kind: AzureSecurityGroup, Done: true, Facts: map[string]string{"association": "service"}})
	step := aggregate.Azure.Step(AzureSecurityGroup)
	if step.Done || step.Facts["association"] != "service" {
		t.Errorf("the step is %+v, want it to be undone with what was decided", step)
	}
}

// TestRegionWithoutAzureHasNoAzureSteps checks that a cluster is ready without Azure steps in a region without Azure.
func TestRegionWithoutAzureHasNoAzureSteps(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Azure, r.AzureKinds = nil, nil
	r.planAzure(azureDay, aggregate)
	if aggregate.Azure != nil || !r.azureReady(aggregate) || len(aggregate.azureLayers()) > 0 {
		t.Errorf("the Azure state is %+v, want none", aggregate.Azure)
	}
}

// TestRecoveredClusterGetsAllAzureSteps checks that a recovered cluster has all steps and the recovered owner of the subnet's
// association.
func TestRecoveredClusterGetsAllAzureSteps(t *testing.T) {
	for _, associated := range []bool{true, false} {
		r, aggregate := inAzure(t)
		aggregate.Azure = RecoveredAzure(associated)
		r.planAzure(azureDay, aggregate)
		if got := len(aggregate.Azure.Steps); got != len(AzureKinds()) {
			t.Errorf("%d steps, want %d", got, len(AzureKinds()))
		}
		aggregate.Azure.Record(azureDay, outcomeOf(AzureSecurityGroup, ""))
		if got := aggregate.Azure.SubnetAssociated(); got != associated {
			t.Errorf("the service owns the association: %v, want %v", got, associated)
		}
	}
}
