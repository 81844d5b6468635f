package fleet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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

// createdInAzure returns a cluster whose steps are done, apart from some.
func createdInAzure(t *testing.T, except ...AzureKind) (Region, *ClusterAggregate) {
	t.Helper()
	r, aggregate := inAzure(t)
	aggregate.Cluster.SigningKey, aggregate.Works[0].Observed.EndpointHost = []byte("sealed"), "192.0.2.1"
	r.planAzure(azureDay, aggregate)
	for _, kind := range AzureKinds() {
		if !slices.Contains(except, kind) {
			input, _ := r.AzureInput(aggregate, kind)
			aggregate.Azure.Record(azureDay, outcomeOf(kind, input))
			r.planAzure(azureDay, aggregate)
		}
	}
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
	r, aggregate := createdInAzure(t)
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

var ada = &csv1.Actor{Name: "ada@example.com", Reason: "the customer's roles are their own"}

// TestOnlyStuckCreationStepsCanBeForced checks which steps of a creation can be forced, and the refusals of the others.
func TestOnlyStuckCreationStepsCanBeForced(t *testing.T) {
	tests := map[string]struct {
		reason string
		step   string
		after  time.Duration
		given  func(t *ClusterAggregate)
		// refused is a part of the refusal; empty when it is forced.
		refused string
		unknown bool
	}{
		"Stuck":    {"the step exceeded its time limit", "azure/operator-roles", time.Hour, nil, "", false},
		"NotStuck": {"the step is within its time limit", "azure/operator-roles", time.Minute, nil, "may be forced from 2026-03-01T12:15:00Z on", false},
		"Done":     {"the cluster does not wait for it", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Azure.Step(AzureRoles).Done = true }, "is done. The cluster waits for: azure/resource-group", false},
		"Again": {"the step was forced before", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) {
			t.Azure.Step(AzureRoles).Forced = &AzureForce{By: "bob@example.com"}
		}, "was forced by bob@example.com", false},
		"Identities": {"the HostedCluster needs the client IDs", "azure/identities", time.Hour, nil, "cannot be forced: the control plane is not created without", false},
		"Unknown":    {"a step is named as in the progress", "operator-roles", time.Hour, nil, `There is no step "operator-roles". The cluster waits for: azure/resource-group`, true},
		"NoAzure":    {"no Azure step exists", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Azure = nil }, "The cluster waits for no step that can be forced.", true},
		"Ready":      {"a cluster that was ready once waits for no step", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Cluster.Status.ObservedGeneration = 1 }, "waits for no step", false},
		"Deleting":   {"a deletion has its own steps", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Cluster.DeleteTime = azureDay }, "force a step of its deletion instead", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, aggregate := inAzure(t)
			if tc.given != nil {
				tc.given(aggregate)
			}
			err := r.ForceCreationStep(azureDay.Add(tc.after), aggregate, tc.step, ada)
			if tc.refused == "" {
				if err != nil || aggregate.Azure.Step(AzureRoles).Forced.By != ada.Name {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			var refusal *StepRefusal
			if !errors.As(err, &refusal) || refusal.Unknown != tc.unknown || !strings.Contains(refusal.Message, tc.refused) {
				t.Errorf("%s: refused with %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
}

// TestForcedStepIsRetriedAndNotAwaited checks that a cluster does not wait for a forced step, and that the step is retried until it
// succeeds.
func TestForcedStepIsRetriedAndNotAwaited(t *testing.T) {
	r, aggregate := createdInAzure(t, AzureRoles)
	later := azureDay.Add(time.Hour)
	aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Error: "the customer must act"})
	if r.azureReady(aggregate) {
		t.Fatal("the cluster is reported ready with a failing step")
	}
	must.Do(t, r.ForceCreationStep(later, aggregate, "azure/operator-roles", ada))
	r.planAzure(later, aggregate)
	if !r.azureReady(aggregate) {
		t.Error("the cluster waits for the forced step")
	}
	layers := aggregate.azureLayers()
	if len(layers) != 1 || layers[0].state != "Ready" || layers[0].message != "12 of 13 Azure resources of the cluster exist. ada@example.com let the creation continue without the check of the operators' roles "+
		"(the customer's roles are their own); its last attempt failed: the customer must act." {
		t.Errorf("the progress is %v", layers)
	}
	step := aggregate.Azure.Step(AzureRoles)
	for range 30 {
		aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Error: "the customer must act"})
	}
	r.planAzure(later, aggregate)
	if wait := step.RetryTime.Sub(later); !step.Due || wait != azureLastForced {
		t.Errorf("it is retried after %v", wait)
	}
	// It also reads the identities again.
	if n := aggregate.RetryAzure(later, ada); n != 2 || !step.RetryTime.IsZero() {
		t.Errorf("a retry retries %d steps", n)
	}
	aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Done: true})
	r.planAzure(later, aggregate)
	if layers := aggregate.azureLayers(); step.Forced != nil || layers[0].message != "All 13 Azure resources of the cluster exist." {
		t.Errorf("after success the step is %+v and the progress %v", step, layers)
	}
}

// TestIdentitiesAreReadAgain checks when the identities of a ready cluster are read again, and that replaced identities make
// the steps due that depend on them.
func TestIdentitiesAreReadAgain(t *testing.T) {
	const a, b = "/subscriptions/S/a", "/subscriptions/S/b"
	r, aggregate := createdInAzure(t)
	now := azureDay
	step := aggregate.Azure.Step(AzureIdentities)
	record := func(wantNext time.Duration, failure string, facts ...map[string]string) {
		t.Helper()
		input, _ := r.AzureInput(aggregate, AzureIdentities)
		o := AzureOutcome{Kind: AzureIdentities, Done: failure == "", Error: failure, Input: input, Requests: step.Requests, Facts: map[string]string{AzureIdentitiesMissing: ""}}
		for _, f := range facts {
			maps.Copy(o.Facts, f)
		}
		aggregate.Azure.Record(now, o)
		r.planAzure(now, aggregate)
		if got := step.RetryTime.Sub(now); got != wantNext {
			t.Fatalf("the identities are read again after %v, want %v", got, wantNext)
		}
	}
	undone := func() (kinds []AzureKind) {
		for _, s := range aggregate.Azure.Steps {
			if !s.Done {
				kinds = append(kinds, s.Kind)
			}
		}
		return kinds
	}

	if next := aggregate.Azure.Next(now.Add(azureIdentitiesInterval-time.Second), nil); next != nil {
		t.Fatalf("step %s is attempted before it is due", next.Kind)
	}
	now = now.Add(azureIdentitiesInterval)
	if next := aggregate.Azure.Next(now, nil); next == nil || next.Kind != AzureIdentities {
		t.Fatalf("after %v the next step is %v", azureIdentitiesInterval, next)
	}
	record(azureIdentitiesInterval, "", IdentityFacts(a, "client-a", "principal-a"))
	first := aggregate.Azure.IdentityIDs()
	record(azureIdentitiesInterval, "", IdentityFacts(b, "client-b", "principal-b"))
	known := aggregate.Azure.IdentityIDs()
	if first == "" || first == known {
		t.Errorf("another identity changes the digest from %q to %q", first, known)
	}
	record(azureIdentitiesInterval, "", IdentityFacts(strings.ToUpper(a), "client-a", "principal-a"), IdentityFacts(b, "client-b", "principal-b"))
	if got := aggregate.Azure.IdentityIDs(); got != known || len(undone()) > 0 {
		t.Errorf("equal identities change the digest from %q to %q and make %v due", known, got, undone())
	}

	// A failure changes nothing but the progress, and the interval of the attempts grows.
	record(azureFirstRetry, "Azure returned 503")
	if layers := aggregate.azureLayers(); len(layers) != 1 || layers[0].state != clusterstatus.StateIdentityReadFailing || len(undone()) > 0 {
		t.Errorf("after a failure the progress is %v, and %v are due", layers, undone())
	}
	for range 12 {
		input, _ := r.AzureInput(aggregate, AzureIdentities)
		aggregate.Azure.Record(now, AzureOutcome{Kind: AzureIdentities, Input: input, Requests: step.Requests, Error: "x"})
	}
	record(azureLastIdentities, "it does not exist", map[string]string{AzureIdentitiesMissing: "properties.x"})
	if layers := aggregate.azureLayers(); len(layers) != 1 || layers[0].state != clusterstatus.StateIdentityDeleted || !r.azureReady(aggregate) {
		t.Errorf("without an identity the progress is %v", layers)
	}
	// A retry reads them at once. Until then, the progress does not change.
	if n := aggregate.RetryAzure(now, ada); n != 1 {
		t.Errorf("a retry retries %d steps", n)
	}
	if next, layers := aggregate.Azure.Next(now, nil), aggregate.azureLayers(); next != step || layers[0].state != clusterstatus.StateIdentityDeleted {
		t.Errorf("after a retry the next step is %v and the progress %v", next, layers)
	}

	// An attempt that started before a request does not answer it, whatever its outcome.
	for _, failure := range []string{"", "Azure returned 503"} {
		record(map[string]time.Duration{"": azureIdentitiesInterval, "Azure returned 503": azureFirstRetry}[failure], failure)
		started := step.Requests
		aggregate.Azure.ReadIdentitiesAgain()
		input, _ := r.AzureInput(aggregate, AzureIdentities)
		aggregate.Azure.Record(now, AzureOutcome{Kind: AzureIdentities, Done: failure == "", Error: failure, Input: input, Requests: started})
		r.planAzure(now, aggregate)
		if next := aggregate.Azure.Next(now, nil); next != step {
			t.Errorf("after an attempt with the failure %q the next step is %v, want the identities", failure, next)
		}
	}

	for _, replacement := range []string{"2", "3"} {
		record(azureIdentitiesInterval, "", IdentityFacts(a, "client-a", "principal-a"), IdentityFacts(b, "client-b"+replacement, "principal-b"+replacement))
		if want := []AzureKind{AzureRoles, AzureFederation, AzureCredentials}; !slices.Equal(undone(), want) || aggregate.Azure.IdentityIDs() == known {
			t.Errorf("a replaced identity makes %v due, want %v", undone(), want)
		}
		if aggregate.Azure.ClientID(b) != "client-b"+replacement || aggregate.Azure.PrincipalID(strings.ToUpper(b)) != "principal-b"+replacement {
			t.Errorf("the IDs are %v", aggregate.Azure.Step(AzureIdentities).Facts)
		}
		for _, kind := range undone() {
			input, _ := r.AzureInput(aggregate, kind)
			aggregate.Azure.Record(now, outcomeOf(kind, input))
		}
		r.planAzure(now, aggregate)
		if layers := aggregate.azureLayers(); len(undone()) > 0 || len(layers) != 1 || layers[0].state != "Ready" {
			t.Errorf("after the replacement the progress is %v", layers)
		}
	}

	// A row of an early release has no time of the next read: the identities are read at once.
	step.RetryTime = time.Time{}
	r.planAzure(now, aggregate)
	if next := aggregate.Azure.Next(now, nil); next == nil || next.Kind != AzureIdentities || !next.Done {
		t.Errorf("the next step is %v, want the identities", next)
	}
}
