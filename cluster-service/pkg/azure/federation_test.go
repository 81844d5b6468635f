package azure_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestFullIdentityIsReported gives a data plane identity so many federated credentials that only one of a cluster's two fits.
// The cluster has a condition with the property of the identity until the customer deletes a credential.
func TestFullIdentityIsReported(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	cluster := w.cluster("192.0.2.1")
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators[image-registry]"
	identity := cluster.Cluster.Spec.Platform.DataPlaneOperators["image-registry"]
	identity = identity[strings.LastIndex(identity, "/")+1:]
	credentials, err := armmsi.NewFederatedIdentityCredentialsClient(customer, w.azure.Tokens, w.azure.Options())
	if err != nil {
		t.Fatal(err)
	}
	identities, err := armmsi.NewUserAssignedIdentitiesClient(customer, w.azure.Tokens, w.azure.Options())
	if err != nil {
		t.Fatal(err)
	}
	// The emulator creates the customer's resources when they are read.
	if _, err := identities.Get(t.Context(), "cust-rg", identity, nil); err != nil {
		t.Fatal(err)
	}
	for i := range clusterstatus.MaxFederatedCredentials - 1 {
		if _, err := credentials.CreateOrUpdate(t.Context(), "cust-rg", identity, fmt.Sprintf("other-%d", i), armmsi.FederatedIdentityCredential{
			Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(fmt.Sprintf("https://issuer.example/%d", i)), Subject: to.Ptr("s"), Audiences: []*string{to.Ptr("openshift")}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	try := func() fleet.AzureOutcome {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		if err := w.steps.Region.Settle(w.now, cluster, nil); err != nil {
			t.Fatal(err)
		}
		o := w.steps.Try(t.Context(), cluster, cluster.Azure.Step(fleet.AzureFederation))
		cluster.Azure.Record(w.now, o)
		if err := w.steps.Region.Settle(w.now, cluster, nil); err != nil {
			t.Fatal(err)
		}
		return o
	}
	condition := func() string {
		for _, c := range cluster.Cluster.Status.GetConditions() {
			if c.GetType() == clusterstatus.IdentitiesFederated {
				return c.GetStatus() + " " + c.GetReason() + ": " + c.GetMessage()
			}
		}
		return ""
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
	if _, err := w.azure.Faults().Add(faults.Rule{Methods: []string{"PUT"}, Path: "/federatedIdentityCredentials/", Status: 409, Code: "Conflict", Count: 1}); err != nil {
		t.Fatal(err)
	}
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

	if _, err := credentials.Delete(t.Context(), "cust-rg", identity, "other-0", nil); err != nil {
		t.Fatal(err)
	}
	if o := try(); !o.Done || condition() != "" {
		t.Errorf("after the customer deleted a credential the outcome is %+v, the condition %q", o, condition())
	}
}
