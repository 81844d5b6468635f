package azure_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/msi-dataplane/pkg/dataplane"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// credentials is a cluster whose control plane has the operators ingress and control-plane, in a region with a clock.
type credentials struct {
	*region
	clock   *clock
	vault   *azsecrets.Client
	cluster *fleet.ClusterAggregate
}

// lifetime is the validity period of the credentials in the tests. The data plane renews them from its half on.
const lifetime = 4 * time.Minute

func newCredentials(t *testing.T) *credentials {
	t.Helper()
	c := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := newRegion(t, emulator.Options{Now: c.Now, CertificateLifetime: lifetime})
	w.now, w.steps.Now, w.steps.Region.AzureKinds = c.Now(), c.Now, []fleet.AzureKind{fleet.AzureIdentities, fleet.AzureCredentials}
	vault := must.Get(azsecrets.NewClient(w.azure.URL, w.azure.Tokens, &azsecrets.ClientOptions{ClientOptions: w.azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	cluster := w.cluster("192.0.2.1")
	operators := cluster.Cluster.Spec.Platform.ControlPlaneOperators
	operators["control-plane"] = strings.Replace(operators["ingress"], "cp-ingress", "cp-control-plane", 1)
	return &credentials{region: w, clock: c, vault: vault, cluster: cluster}
}

func (c *credentials) step() *fleet.AzureStep { return c.cluster.Azure.Step(fleet.AzureCredentials) }

// attempt advances the clock to the time at which the next step is due, and attempts it.
func (c *credentials) attempt() fleet.AzureOutcome {
	c.Helper()
	return c.region.attempt(c.clock.Now, c.cluster, func() *fleet.AzureStep {
		at, due := c.cluster.Azure.DueTime()
		if !due {
			c.Fatalf("no step is due: %+v", c.step())
		}
		if at.After(c.clock.Now()) {
			c.clock.set(at)
		}
		return c.cluster.Azure.Next(c.clock.Now(), nil)
	})
}

// until attempts steps until wanted returns true.
func (c *credentials) until(wanted func() bool) {
	c.Helper()
	for tries := 0; !wanted(); tries++ {
		if c.attempt(); tries > 10_000 {
			c.Fatalf("after %d attempts the step is %+v", tries, c.step())
		}
	}
}

// stored returns the newest version of an operator's credential, as the operator reads it.
func (c *credentials) stored(short string) (secret azsecrets.GetSecretResponse, credential dataplane.UserAssignedIdentityCredentials) {
	c.Helper()
	secret = must.Get(c.vault.GetSecret(c.Context(), short+"-cid", "", nil))(c)
	must.Do(c, json.Unmarshal([]byte(*secret.Value), &credential))
	return secret, credential
}

// condition returns the condition CredentialsIssued.
func (c *credentials) condition() string {
	return conditionOf(c.cluster.Cluster.Status.GetConditions(), clusterstatus.CredentialsIssued)
}

// TestCredentialsAreRenewed keeps the credentials of a cluster valid over three renewals, although one in ten requests fails. The published client
// accepts each of them. They are deleted with the cluster.
func TestCredentialsAreRenewed(t *testing.T) {
	c := newCredentials(t)
	must.Get(c.azure.Faults().Add(faults.Rule{Services: []string{"identity", "vault"}, Probability: to.Ptr(0.1), Status: 500}))(t)
	c.until(func() bool { return c.step() != nil && c.step().Done })
	seen := map[string]bool{}
	for len(seen) < 4 {
		c.azure.Faults().Clear()
		for short, operator := range map[string]string{"ingress": "ingress", "cpo": "control-plane"} {
			secret, credential := c.stored(short)
			id := c.cluster.Cluster.Spec.Platform.ControlPlaneOperators[operator]
			if *credential.ResourceID != id || *credential.ClientID != c.cluster.Azure.ClientID(id) || *secret.Tags["hcpmesh-cluster"] != c.cluster.Cluster.UID ||
				*secret.Tags[dataplane.RenewAfterKeyVaultTag] != *credential.RenewAfter {
				t.Errorf("the credential of %s is that of %s, with the tags %v", operator, *credential.ResourceID, secret.Tags)
			}
			credential.AuthenticationEndpoint = to.Ptr("https://login.example/") // the client wants TLS, which the issuer of the test does not have
			must.Get(dataplane.GetCredential(policy.ClientOptions{}, credential))(t)
			if !c.clock.Now().Before(*secret.Attributes.Expires) {
				t.Errorf("at %v the credential of %s has ended at %v", c.clock.Now(), operator, *secret.Attributes.Expires)
			}
		}
		renews := c.step().Renew
		seen[renews.String()] = true
		must.Get(c.azure.Faults().Add(faults.Rule{Services: []string{"identity", "vault"}, Probability: to.Ptr(0.1), Status: 500}))(t)
		c.until(func() bool { return !c.step().Renew.Equal(renews) })
	}
	c.azure.Faults().Clear()
	c.cluster.Cluster.DeleteTime = c.clock.Now()
	c.cluster.Works = slices.DeleteFunc(c.cluster.Works, func(work *fleet.Work) bool { return work.Kind == fleet.HostedCluster })
	for range 2 {
		c.attempt()
	}
	c.nothingLeft()
}

// TestRefusedIdentityHidesNoOther deletes one of two identities. Its credential is refused, the other one is renewed. With the identity created
// again, the cluster gets a credential of the new one without a request of the customer.
func TestRefusedIdentityHidesNoOther(t *testing.T) {
	c := newCredentials(t)
	c.until(func() bool { return c.step() != nil && c.step().Done })
	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customer, c.azure.Tokens, c.azure.Options()))(t)
	must.Get(identities.Delete(t.Context(), "cust-rg", "cp-control-plane", nil))(t)
	_, lost := c.stored("cpo")
	_, other := c.stored("ingress")
	c.until(func() bool { return c.step().Error != "" })
	const property = "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators[control-plane]"
	if got, want := c.condition(), "False CredentialRefused: Azure issues no usable credential for the identities of these properties: "+property+"."; got != want {
		t.Errorf("condition %q, want %q", got, want)
	}
	if want := "userAssignedIdentities/cp-control-plane of operator control-plane: Azure returned 404 IdentityNotFound"; !strings.Contains(c.step().Error, want) || strings.Contains(c.step().Error, "ingress") {
		t.Errorf("error %q, want %q", c.step().Error, want)
	}
	_, kept := c.stored("cpo")
	_, renewed := c.stored("ingress")
	if *kept.NotAfter != *lost.NotAfter || *renewed.NotAfter == *other.NotAfter {
		t.Errorf("the credential of the deleted identity ends at %s, before at %s; that of the other one at %s, before at %s", *kept.NotAfter, *lost.NotAfter, *renewed.NotAfter, *other.NotAfter)
	}
	must.Get(identities.CreateOrUpdate(t.Context(), "cust-rg", "cp-control-plane", armmsi.Identity{Location: to.Ptr("westus3")}, nil))(t)
	id := c.cluster.Cluster.Spec.Platform.ControlPlaneOperators["control-plane"]
	before := c.cluster.Azure.PrincipalID(id)
	c.until(func() bool {
		_, now := c.stored("cpo")
		return *now.ObjectID != before
	})
	if c.condition() != "" || c.cluster.Azure.PrincipalID(id) == before {
		t.Errorf("with the identity created again: %q, principal %s", c.condition(), c.cluster.Azure.PrincipalID(id))
	}
}

// TestForeignIdentityURLGetsNoToken tries identity URLs that are not of the data plane.
func TestForeignIdentityURLGetsNoToken(t *testing.T) {
	for url, want := range map[string]string{
		"":                              "is not an https URL",
		"http://127.0.0.1/credentials":  "is not an https URL",
		"https://attacker.example/x":    "the host attacker.example of the identity URL",
		"https://127.0.0.1.example/x":   "the host 127.0.0.1.example of the identity URL",
		"https://127.0.0.1@example.com": "the host example.com of the identity URL",
	} {
		c := newCredentials(t)
		c.cluster.Cluster.Spec.IdentityUrl = url
		c.until(func() bool { return c.step() != nil && c.step().Error != "" })
		if !strings.Contains(c.step().Error, want) || c.step().Done || c.condition() != "" {
			t.Errorf("%q: %q, want %q", url, c.step().Error, want)
		}
	}
}
