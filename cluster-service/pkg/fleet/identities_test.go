package fleet

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// TestIdentitiesAreReadAgain checks when the identities of a ready cluster are read again, and that replaced identities make
// the steps due that depend on them.
func TestIdentitiesAreReadAgain(t *testing.T) {
	const a, b = "/subscriptions/S/a", "/subscriptions/S/b"
	r, aggregate := inAzure(t)
	aggregate.Cluster.SigningKey, aggregate.Works[0].Observed.EndpointHost = []byte("sealed"), "192.0.2.1"
	r.planAzure(azureDay, aggregate)
	for _, kind := range AzureKinds() {
		input, _ := r.AzureInput(aggregate, kind)
		aggregate.Azure.Record(azureDay, outcomeOf(kind, input))
		r.planAzure(azureDay, aggregate)
	}
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
