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
func inAzure(t *testing.T) (Region, *Tenancy) {
	t.Helper()
	r := Region{BaseDomain: "example.com", IssuerBase: "https://oidc.example.com", AzureKinds: AzureKinds()}
	tenancy := &Tenancy{Cluster: &Cluster{UID: "u", Shard: "mgmt-1", Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{ClusterId: "c", BaseDomainPrefix: "p"}},
		Works: []*Work{{ID: "1", Kind: HostedCluster}, {ID: "2", Kind: Namespaces}}}
	r.planAzure(azureDay, tenancy)
	if tenancy.Azure != nil || r.azureDone(tenancy) {
		t.Fatal("something is made in Azure before the HostedCluster is there")
	}
	tenancy.Works[0].Observed.Applied.Status = "True"
	r.planAzure(azureDay, tenancy)
	return r, tenancy
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
	r, tenancy := inAzure(t)
	first := []AzureKind{AzureResourceGroup, AzureSecurityGroup, AzureRoles, AzureFederation, AzureCertificate}
	if got := dueKinds(tenancy.Azure); !slices.Equal(got, first) {
		t.Errorf("due at first are %v, want %v", got, first)
	}
	tenancy.Cluster.SigningKey = []byte("sealed")
	tenancy.Works[0].Observed.EndpointHost = "192.0.2.1"
	var made []AzureKind
	for {
		r.planAzure(azureDay, tenancy)
		step := tenancy.Azure.Next(azureDay, nil)
		if step == nil {
			break
		}
		if r.azureDone(tenancy) {
			t.Fatal("everything is said to be there too early")
		}
		input, _ := r.AzureInput(tenancy, step.Kind)
		made = append(made, step.Kind)
		tenancy.Azure.Record(azureDay, AzureOutcome{Kind: step.Kind, Done: true, Input: input})
	}
	if !slices.Equal(made, AzureKinds()) || !r.azureDone(tenancy) {
		t.Errorf("made %v, want %v", made, AzureKinds())
	}

	tenancy.Works[0].Observed.EndpointHost = "192.0.2.2"
	r.planAzure(azureDay, tenancy)
	if got := dueKinds(tenancy.Azure); !slices.Equal(got, []AzureKind{AzureAPIRecord, AzureServiceRecords}) {
		t.Errorf("due with another endpoint are %v, want the records", got)
	}

	tenancy.Cluster.DeleteTime = azureDay
	r.planAzure(azureDay, tenancy)
	if tenancy.Azure.Deleting || len(dueKinds(tenancy.Azure)) > 0 {
		t.Error("something happens in Azure while the HostedCluster is there and the cluster is deleted")
	}
	tenancy.Works = tenancy.Works[1:]
	var removed []AzureKind
	for {
		r.planAzure(azureDay, tenancy)
		step := tenancy.Azure.Next(azureDay, nil)
		if step == nil {
			break
		}
		removed = append(removed, step.Kind)
		tenancy.Azure.Record(azureDay, AzureOutcome{Kind: step.Kind, Undo: true, Done: true})
	}
	want := AzureKinds()
	slices.Reverse(want)
	if !slices.Equal(removed, want) || len(tenancy.Azure.Steps) > 0 {
		t.Errorf("removed %v, want %v", removed, want)
	}
}

// TestAzureTroubleHoldsUpWhatNeedsIt has a step fail, on the way there and on the way back.
func TestAzureTroubleHoldsUpWhatNeedsIt(t *testing.T) {
	r, tenancy := inAzure(t)
	tenancy.Azure.Record(azureDay, AzureOutcome{Kind: AzureResourceGroup, Error: "Azure answered 500"})
	r.planAzure(azureDay, tenancy)
	if got := tenancy.Azure.Next(azureDay, nil); got.Kind != AzureSecurityGroup {
		t.Errorf("next is %v, want what does not need the group", got.Kind)
	}
	if got := tenancy.Azure.Next(azureDay.Add(azureFirstRetry), nil); got.Kind != AzureResourceGroup {
		t.Errorf("next after a while is %v, want the group again", got.Kind)
	}
	layers := tenancy.azureLayers()
	if len(layers) != 1 || layers[0].state != "RetryingResourceGroup" || !strings.Contains(layers[0].message, "Attempt 1 failed: Azure answered 500") {
		t.Errorf("progress is %v", layers)
	}

	tenancy.Cluster.DeleteTime, tenancy.Works = azureDay, nil
	for now := azureDay; ; {
		r.planAzure(now, tenancy)
		step := tenancy.Azure.Next(now, map[AzureKind]bool{AzureDNSDelegation: true})
		if step == nil {
			break
		}
		tenancy.Azure.Record(now, AzureOutcome{Kind: step.Kind, Undo: true, Done: true})
	}
	var left []AzureKind
	for _, s := range tenancy.Azure.Steps {
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
		"Decided":   {"a decision is acted upon at once", []AzureOutcome{{Facts: map[string]string{"a": "b"}}}, 0},
		"Recovered": {"a success forgets the failures before", []AzureOutcome{{Error: "x"}, {Error: "x"}, {Awaited: "Azure"}, {Error: "x"}}, azureFirstRetry},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, tenancy := inAzure(t)
			for _, o := range tc.outcomes {
				o.Kind = AzureCertificate
				tenancy.Azure.Record(azureDay, o)
			}
			wait := time.Duration(0)
			if at := tenancy.Azure.Step(AzureCertificate).RetryTime; !at.IsZero() {
				wait = at.Sub(azureDay)
			}
			if wait != tc.want {
				t.Errorf("%s: waits %v, want %v", tc.reason, wait, tc.want)
			}
		})
	}
}

// TestAzureOutcomesOfTheOtherDirection come when a step was begun before the deletion was decided.
func TestAzureOutcomesOfTheOtherDirection(t *testing.T) {
	r, tenancy := inAzure(t)
	tenancy.Cluster.DeleteTime, tenancy.Works = azureDay, nil
	r.planAzure(azureDay, tenancy)
	tenancy.Azure.Record(azureDay, AzureOutcome{Kind: AzureSecurityGroup, Done: true, Facts: map[string]string{"association": "service"}})
	step := tenancy.Azure.Step(AzureSecurityGroup)
	if step.Done || step.Facts["association"] != "service" {
		t.Errorf("the step is %+v, want it to be undone with what was decided", step)
	}
}

// TestNoAzure is a region without.
func TestNoAzure(t *testing.T) {
	r, tenancy := inAzure(t)
	tenancy.Azure, r.AzureKinds = nil, nil
	r.planAzure(azureDay, tenancy)
	if tenancy.Azure != nil || !r.azureDone(tenancy) || len(tenancy.azureLayers()) > 0 {
		t.Errorf("without Azure there is %+v", tenancy.Azure)
	}
}
