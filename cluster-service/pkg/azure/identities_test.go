package azure_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
	var step *fleet.AzureStep
	try := func() fleet.AzureOutcome {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		return w.attempt(func() time.Time { return w.now }, cluster, func() *fleet.AzureStep {
			if step = cluster.Azure.Next(w.now, nil); step == nil || step.Kind != fleet.AzureIdentities {
				t.Fatalf("the next step is %+v", step)
			}
			return step
		})
	}
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators[ingress]"
	condition := func() string {
		return conditionOf(cluster.Cluster.Status.GetConditions(), clusterstatus.IdentitiesRead)
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
		must.Get(w.azure.Faults().Add(rule))(t)
	}

	disturb(faults.Rule{Status: 404, Code: "ResourceNotFound"})
	if o := try(); o.Done || !strings.Contains(o.Error, "the customer must act: the identity ") || !strings.Contains(o.Error, property) || step.Facts[fleet.AzureIdentitiesMissing] != property {
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
	if o := try(); o.Done || !strings.Contains(o.Error, "403 AuthorizationFailed") {
		t.Errorf("with a refused request the outcome is %+v", o)
	}
	if condition() != "" || state() != "RetryingIdentities" {
		t.Errorf("with a refused request the customer is named: %q, %q", condition(), state())
	}

	w.azure.Faults().Clear()
	if o := try(); !o.Done || condition() != "" {
		t.Errorf("the outcome is %+v, the condition %q", o, condition())
	}
	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customer, w.azure.Tokens, w.azure.Options()))(t)
	for _, id := range []string{platform.ControlPlaneOperators["ingress"], platform.DataPlaneOperators["image-registry"], platform.ServiceManagedIdentity} {
		found := must.Get(identities.Get(t.Context(), "cust-rg", id[strings.LastIndex(id, "/")+1:], nil))(t)
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
	must.Get(identities.Delete(t.Context(), "cust-rg", ingress[strings.LastIndex(ingress, "/")+1:], nil))(t)
	platform.ServiceManagedIdentity += "2"
	if o := try(); !o.Done || cluster.Azure.ClientID(platform.ServiceManagedIdentity) == "" {
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
	must.Get(w.azure.Faults().Add(rule))(t)
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
	must.Do(t, w.steps.Region.Settle(w.now, cluster, nil))
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

// TestFullIdentityIsReported gives a data plane identity so many federated credentials that only one of a cluster's two fits.
// The cluster has a condition with the property of the identity until the customer deletes a credential.
func TestFullIdentityIsReported(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	cluster := w.cluster("192.0.2.1")
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators[image-registry]"
	identity := cluster.Cluster.Spec.Platform.DataPlaneOperators["image-registry"]
	identity = identity[strings.LastIndex(identity, "/")+1:]
	credentials := must.Get(armmsi.NewFederatedIdentityCredentialsClient(customer, w.azure.Tokens, w.azure.Options()))(t)
	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customer, w.azure.Tokens, w.azure.Options()))(t)
	// The emulator creates the customer's resources when they are read.
	must.Get(identities.Get(t.Context(), "cust-rg", identity, nil))(t)
	for i := range clusterstatus.MaxFederatedCredentials - 1 {
		must.Get(credentials.CreateOrUpdate(t.Context(), "cust-rg", identity, fmt.Sprintf("other-%d", i), armmsi.FederatedIdentityCredential{
			Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(fmt.Sprintf("https://issuer.example/%d", i)), Subject: to.Ptr("s"), Audiences: []*string{to.Ptr("openshift")}}}, nil))(t)
	}
	try := func() fleet.AzureOutcome {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		return w.attempt(func() time.Time { return w.now }, cluster, func() *fleet.AzureStep { return cluster.Azure.Step(fleet.AzureFederation) })
	}
	condition := func() string {
		return conditionOf(cluster.Cluster.Status.GetConditions(), clusterstatus.IdentitiesFederated)
	}
	progress := func() string {
		var states []string
		for _, p := range cluster.Cluster.Status.GetProgress() {
			if p.GetLayer() == fleet.LayerAzure {
				states = append(states, p.GetState()+": "+p.GetMessage())
			}
		}
		return strings.Join(states, "\n")
	}

	// Azure also returns 409 when another client writes credentials of the identity. The customer cannot change that.
	must.Get(w.azure.Faults().Add(faults.Rule{Methods: []string{"PUT"}, Path: "/federatedIdentityCredentials/", Status: 409, Code: "Conflict", Count: 1}))(t)
	if o := try(); o.Done || !strings.Contains(o.Error, "409 Conflict") || condition() != "" || !strings.Contains(progress(), "RetryingFederatedCredentials: ") {
		t.Errorf("after a concurrent write the outcome is %+v, the condition %q, the progress %q", o, condition(), progress())
	}

	if o := try(); o.Done || !strings.Contains(o.Error, "the customer must act: ") || !strings.Contains(o.Error, property) {
		t.Errorf("with a full identity the outcome is %+v", o)
	}
	if got, want := condition(), "False FederatedCredentialLimit: The identities of these properties already have as many federated credentials as Azure allows: "+property+"."; got != want {
		t.Errorf("with a full identity the condition is %q, want %q", got, want)
	}
	if !strings.Contains(progress(), "FederatedCredentialLimit: Attempt ") {
		t.Errorf("with a full identity the progress is %q", progress())
	}
	if _, err := credentials.Get(t.Context(), "cust-rg", identity, "cid-registry", nil); err != nil {
		t.Errorf("the credential that fits does not exist: %v", err)
	}

	must.Get(credentials.Delete(t.Context(), "cust-rg", identity, "other-0", nil))(t)
	if o := try(); !o.Done || condition() != "" {
		t.Errorf("after the customer deleted a credential the outcome is %+v, the condition %q", o, condition())
	}
}
