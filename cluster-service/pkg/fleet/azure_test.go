package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

var azureDay = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// inAzure is a placed cluster in a region where clusters get resources in Azure.
func inAzure(t *testing.T) (Region, *ClusterAggregate) {
	t.Helper()
	r := Region{BaseDomain: "example.com", IssuerBase: "https://oidc.example.com", AzureKinds: AzureKinds()}
	aggregate := &ClusterAggregate{Cluster: &Cluster{UID: "u", Shard: "mgmt-1", Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{ClusterId: "c", BaseDomainPrefix: "p"}},
		Works: []*Work{{ID: "1", Kind: HostedCluster}, {ID: "2", Kind: Namespaces}}}
	r.planAzure(azureDay, aggregate)
	if aggregate.Azure != nil || r.azureReady(aggregate) {
		t.Fatal("something is made in Azure before the HostedCluster is there")
	}
	aggregate.Works[0].Observed.Applied.Status = "True"
	r.planAzure(azureDay, aggregate)
	return r, aggregate
}

// outcomeOf is a step that was made, which ends if it is of a kind that does.
func outcomeOf(kind AzureKind, input string) AzureOutcome {
	o := AzureOutcome{Kind: kind, Done: true, Input: input}
	if kind == AzureCertificate {
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

// TestAzureOrder makes everything, each step as soon as it may be, and removes it again.
func TestAzureOrder(t *testing.T) {
	r, aggregate := inAzure(t)
	first := []AzureKind{AzureResourceGroup, AzureSecurityGroup, AzureRoles, AzureFederation, AzureCertificate}
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
			t.Fatal("everything is said to be there too early")
		}
		input, _ := r.AzureInput(aggregate, step.Kind)
		made = append(made, step.Kind)
		aggregate.Azure.Record(azureDay, outcomeOf(step.Kind, input))
	}
	if !slices.Equal(made, AzureKinds()) || !r.azureReady(aggregate) {
		t.Errorf("made %v, want %v", made, AzureKinds())
	}

	aggregate.Works[0].Observed.EndpointHost = "192.0.2.2"
	r.planAzure(azureDay, aggregate)
	if got := dueKinds(aggregate.Azure); !slices.Equal(got, []AzureKind{AzureCertificate, AzureAPIRecord, AzureServiceRecords}) {
		t.Errorf("due with another endpoint are %v, want the records", got)
	}

	aggregate.Cluster.DeleteTime = azureDay
	r.planAzure(azureDay, aggregate)
	if aggregate.Azure.Deleting || len(dueKinds(aggregate.Azure)) > 0 {
		t.Error("something happens in Azure while the HostedCluster is there and the cluster is deleted")
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

// TestAzureTroubleHoldsUpWhatNeedsIt has a step fail, on the way there and on the way back.
func TestAzureTroubleHoldsUpWhatNeedsIt(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Azure.Record(azureDay, AzureOutcome{Kind: AzureResourceGroup, Error: "Azure answered 500"})
	r.planAzure(azureDay, aggregate)
	if got := aggregate.Azure.Next(azureDay, nil); got.Kind != AzureSecurityGroup {
		t.Errorf("next is %v, want what does not need the group", got.Kind)
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
		"Asked":     {"Azure is obeyed", []AzureOutcome{{Error: "x", RetryAfter: 90 * time.Second}}, 90 * time.Second},
		"TooLong":   {"within reason", []AzureOutcome{{Error: "x", RetryAfter: 24 * time.Hour}}, azureLongest},
		"UnderWay":  {"what is under way is looked at soon", []AzureOutcome{{Awaited: "Azure"}}, azurePatience},
		"LongUnder": {"and less often when it takes long", slices.Repeat([]AzureOutcome{{Awaited: "Azure"}}, 100), azureLongPatience},
		"Decided":   {"a decision is acted upon at once", []AzureOutcome{{Facts: map[string]string{"a": "b"}}}, 0},
		"Recovered": {"a success forgets the failures before", []AzureOutcome{{Error: "x"}, {Error: "x"}, {Awaited: "Azure"}, {Error: "x"}}, azureFirstRetry},
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

// TestAzureRenewal follows a certificate to its end: it is made anew in time, what fails is tried again more and more often,
// and neither the cluster nor what serves is touched by it.
func TestAzureRenewal(t *testing.T) {
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
	if at, due := aggregate.Azure.DueTime(); !due || !at.Equal(renew) {
		t.Fatalf("the next thing to do is at %v, want the renewal at %v", at, renew)
	}
	if firstEnd, overdue := aggregate.Azure.Expiry(); !firstEnd.Equal(ends) || !overdue.Equal(azureDay.AddDate(0, 0, 75)) {
		t.Errorf("the first ends at %v and is overdue from %v", firstEnd, overdue)
	}
	if aggregate.Azure.Next(renew.Add(-time.Second), nil) != nil {
		t.Error("something is done before it is time")
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
			t.Fatal("a renewal that fails takes something away")
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
	if len(layers) != 1 || layers[0].state != AzureRenewalFailing || !strings.Contains(layers[0].message, "renew the API server's certificate, which expires at 2026-05-30T12:00:00Z, failed: Azure answered 403") {
		t.Errorf("progress is %v", layers)
	}
	aggregate.Azure.Record(now, AzureOutcome{Kind: AzureCertificate, Done: true, Expires: now.AddDate(0, 0, 90), Renew: now.AddDate(0, 0, 60),
		Facts: map[string]string{AzureCertificateVersion: "2", AzureCertificateRenewed: "2"}})
	r.planAzure(now, aggregate)
	if layers := aggregate.azureLayers(); len(layers) != 1 || layers[0].state != "Ready" || aggregate.RenewedCertificate() != "2" {
		t.Errorf("renewed, the progress is %v and the version %q", layers, aggregate.RenewedCertificate())
	}
	// An earlier release did not say when a certificate ends: it is looked at.
	certificate.Expires, certificate.Renew, certificate.RetryTime = time.Time{}, time.Time{}, time.Time{}
	r.planAzure(now, aggregate)
	if aggregate.Azure.Next(now, nil) != certificate || !r.azureReady(aggregate) {
		t.Error("a certificate of which nobody knows when it ends is not looked at")
	}
	aggregate.Cluster.DeleteTime = now
	r.planAzure(now, aggregate)
	if len(dueKinds(aggregate.Azure)) > 0 {
		t.Error("a cluster that is being deleted has its certificate renewed")
	}
}

// TestAzureOutcomesOfTheOtherDirection come when a step was begun before the deletion was decided.
func TestAzureOutcomesOfTheOtherDirection(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Cluster.DeleteTime, aggregate.Works = azureDay, nil
	r.planAzure(azureDay, aggregate)
	aggregate.Azure.Record(azureDay, AzureOutcome{Kind: AzureSecurityGroup, Done: true, Facts: map[string]string{"association": "service"}})
	step := aggregate.Azure.Step(AzureSecurityGroup)
	if step.Done || step.Facts["association"] != "service" {
		t.Errorf("the step is %+v, want it to be undone with what was decided", step)
	}
}

// TestNoAzure is a region without.
func TestNoAzure(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Azure, r.AzureKinds = nil, nil
	r.planAzure(azureDay, aggregate)
	if aggregate.Azure != nil || !r.azureReady(aggregate) || len(aggregate.azureLayers()) > 0 {
		t.Errorf("without Azure there is %+v", aggregate.Azure)
	}
}

// TestLostAzure plans for a cluster that was lost what every cluster has, and knows which association is the service's.
func TestLostAzure(t *testing.T) {
	for _, associated := range []bool{true, false} {
		r, aggregate := inAzure(t)
		aggregate.Azure = RecoveredAzure(associated)
		r.planAzure(azureDay, aggregate)
		if got := len(aggregate.Azure.Steps); got != len(AzureKinds()) {
			t.Errorf("%d steps, want %d", got, len(AzureKinds()))
		}
		aggregate.Azure.Record(azureDay, outcomeOf(AzureSecurityGroup, ""))
		if got := aggregate.Azure.SubnetAssociated(); got != associated {
			t.Errorf("the association is the service's: %v, want %v", got, associated)
		}
	}
}
