package azure_test

import (
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestClientIDsAreRead reads the identities of a cluster while one of them does not exist, while Azure fails, and after the
// customer created the missing one.
func TestClientIDsAreRead(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	cluster := w.cluster("192.0.2.1")
	platform := cluster.Cluster.Spec.Platform
	platform.ServiceManagedIdentity = strings.Replace(platform.ControlPlaneOperators["ingress"], "cp-ingress", "service", 1)
	cluster.Works = cluster.Works[1:]
	try := func() (fleet.AzureOutcome, *fleet.AzureStep) {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		if err := w.steps.Region.Settle(w.now, cluster, nil); err != nil {
			t.Fatal(err)
		}
		step := cluster.Azure.Next(w.now, nil)
		if step == nil || step.Kind != fleet.AzureIdentities {
			t.Fatalf("the next step is %+v", step)
		}
		o := w.steps.Try(t.Context(), cluster, step)
		cluster.Azure.Record(w.now, o)
		if err := w.steps.Region.Settle(w.now, cluster, nil); err != nil {
			t.Fatal(err)
		}
		return o, step
	}
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators[ingress]"
	condition := func() string {
		for _, c := range cluster.Cluster.Status.GetConditions() {
			if c.GetType() == clusterstatus.IdentitiesRead {
				return c.GetStatus() + " " + c.GetReason() + ": " + c.GetMessage()
			}
		}
		return ""
	}
	state := func() string {
		for _, p := range cluster.Cluster.Status.GetProgress() {
			if p.GetLayer() == fleet.LayerAzure {
				return p.GetState()
			}
		}
		return ""
	}
	disturb := func(rule faults.Rule) {
		t.Helper()
		w.azure.Faults().Clear()
		rule.Methods, rule.Path = []string{"GET"}, "/userAssignedIdentities/cp-ingress"
		if _, err := w.azure.Faults().Add(rule); err != nil {
			t.Fatal(err)
		}
	}

	disturb(faults.Rule{Status: 404, Code: "ResourceNotFound"})
	o, step := try()
	if o.Done || !strings.Contains(o.Error, "the customer must act: the identity ") || !strings.Contains(o.Error, property) || step.Facts[fleet.AzureIdentitiesMissing] != property {
		t.Errorf("with a missing identity the step is %+v, %+v", o, step)
	}
	if got, want := condition(), "False IdentityNotFound: The identities of these properties do not exist: "+property+"."; got != want {
		t.Errorf("with a missing identity the condition is %q, want %q", got, want)
	}
	if got := state(); got != "IdentityNotFound" {
		t.Errorf("with a missing identity the progress is %q", got)
	}
	if cluster.Azure.ClientID(platform.ServiceManagedIdentity) == "" || cluster.Azure.ClientID(platform.ControlPlaneOperators["ingress"]) != "" {
		t.Errorf("with a missing identity the facts are %v", step.Facts)
	}

	disturb(faults.Rule{Status: 403, Code: "AuthorizationFailed"})
	if o, _ = try(); o.Done || !strings.Contains(o.Error, "403 AuthorizationFailed") {
		t.Errorf("with a refused request the outcome is %+v", o)
	}
	if condition() != "" || state() != "RetryingIdentities" {
		t.Errorf("with a refused request the customer is named: %q, %q", condition(), state())
	}

	w.azure.Faults().Clear()
	if o, _ = try(); !o.Done || condition() != "" {
		t.Errorf("the outcome is %+v, the condition %q", o, condition())
	}
	identities, err := armmsi.NewUserAssignedIdentitiesClient(customer, w.azure.Tokens, w.azure.Options())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{platform.ControlPlaneOperators["ingress"], platform.DataPlaneOperators["image-registry"], platform.ServiceManagedIdentity} {
		found, err := identities.Get(t.Context(), "cust-rg", id[strings.LastIndex(id, "/")+1:], nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := cluster.Azure.ClientID(strings.ToUpper(id)); got != *found.Properties.ClientID {
			t.Errorf("the client ID of %s is %q, Azure has %q", id, got, *found.Properties.ClientID)
		}
	}
	if left := w.inAzure(); len(left) > 0 {
		t.Errorf("reading created %v", left)
	}

	// An update that names another identity also notices that the customer has recreated one. The emulator creates it when
	// it is read.
	ingress := platform.ControlPlaneOperators["ingress"]
	before := cluster.Azure.ClientID(ingress)
	if _, err := identities.Delete(t.Context(), "cust-rg", ingress[strings.LastIndex(ingress, "/")+1:], nil); err != nil {
		t.Fatal(err)
	}
	platform.ServiceManagedIdentity += "2"
	if o, _ = try(); !o.Done || cluster.Azure.ClientID(platform.ServiceManagedIdentity) == "" {
		t.Errorf("with another identity the outcome is %+v", o)
	}
	if after := cluster.Azure.ClientID(ingress); after == before {
		t.Errorf("the recreated identity still has the client ID %s", after)
	}
}

// TestIdentitiesAreReadOnce creates all resources of a cluster. The check of the roles uses the principal IDs that the first
// step has read.
func TestIdentitiesAreReadOnce(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	rule := faults.Rule{Methods: []string{"GET"}, Path: "/userAssignedIdentities/cp-ingress", Skip: math.MaxInt32, Status: 500}
	if _, err := w.azure.Faults().Add(rule); err != nil {
		t.Fatal(err)
	}
	w.settle(w.cluster("192.0.2.1"))
	if got := w.azure.Faults().List()[0].Matched; got != 1 {
		t.Errorf("the identity was read %d times", got)
	}
}

// TestIdentitiesAreReadConcurrently answers no read of an identity until all of them have been requested.
func TestIdentitiesAreReadConcurrently(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	cluster := w.cluster("192.0.2.1")
	ctx, cancel := eventually.Context(t)
	defer cancel()
	var waiting atomic.Int32
	all := make(chan struct{})
	transport := w.azure.HTTP().Transport
	w.steps.Clients = azure.NewSDK(w.steps.Config, w.azure.Tokens, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/userAssignedIdentities/") {
			if waiting.Add(1) == int32(len(cluster.Cluster.Identities())) {
				close(all)
			}
			select {
			case <-all:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return transport.RoundTrip(r)
	})})
	if err := w.steps.Region.Settle(w.now, cluster, nil); err != nil {
		t.Fatal(err)
	}
	if o := w.steps.Try(ctx, cluster, cluster.Azure.Step(fleet.AzureIdentities)); !o.Done {
		t.Errorf("the outcome of concurrent reads is %+v", o)
	}
}

// TestVaultClientsAreShared: only the first request to the vault with the certificates has no token, because all attempts use one client.
func TestVaultClientsAreShared(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	var withoutToken atomic.Int32
	transport := w.azure.HTTP().Transport
	w.steps.Clients = azure.NewSDK(w.steps.Config, w.azure.Tokens, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/certificates/") && r.Header.Get("Authorization") == "" {
			withoutToken.Add(1)
		}
		return transport.RoundTrip(r)
	})})
	cluster := w.cluster("192.0.2.1")
	w.settle(cluster)
	w.remove(cluster)
	if n := withoutToken.Load(); n != 1 {
		t.Errorf("%d requests for certificates had no token, want 1", n)
	}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
