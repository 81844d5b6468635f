package azure_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	azurearm "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

const (
	customer = "11111111-1111-1111-1111-111111111111"
	zone     = "0ulz.westus3.aroapp-hcp.io"
)

// region is an Azure emulator with the steps of a Cluster Service that has no database: the aggregate holds the state.
type region struct {
	*testing.T
	azure *emulatortest.Azure
	steps *azure.Steps
	// now is the time of the steps. Waiting advances it.
	now time.Time
}

func newRegion(t *testing.T, options emulator.Options) *region {
	t.Helper()
	options.DataDir, options.AssumeCustomers, options.Seed = t.TempDir(), true, emulatortest.Seed(zone)
	started := must.Get(emulatortest.Start(options))(t)
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	signing := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	settings := config.AzureResources{ResourceManager: started.URL, Audience: "https://management.azure.com", SubscriptionID: emulatortest.Subscription,
		ResourceGroup: "region", Vault: started.URL, CertificateIssuer: "OneCertV2-PublicCA", CAFile: "the emulator's",
		Documents:         config.DocumentStore{Account: started.URL + "/oidc", Container: "issuers"},
		ManagedIdentities: &config.ManagedIdentities{Vault: started.URL, Domain: "127.0.0.1", Audience: azurearm.IdentityAudience}}
	place := fleet.Region{BaseDomain: zone, IssuerBase: started.URL + "/oidc/issuers", AzureKinds: fleet.AzureKinds()}
	clients := azure.NewSDK(settings, started.Tokens, started.HTTP())
	return &region{T: t, azure: started, now: time.Now(), steps: &azure.Steps{Clients: clients, Capacity: azure.NewCapacity(clients, time.Now), Region: place, Config: settings,
		Open: func(string, []byte) ([]byte, error) { return signing, nil }, Now: time.Now}}
}

// cluster returns a cluster with a HostedCluster that reports an endpoint.
func (w *region) cluster(endpoint string) *fleet.ClusterAggregate {
	in := "/subscriptions/" + customer + "/resourceGroups/cust-rg/providers/"
	t := &fleet.ClusterAggregate{
		Cluster: &fleet.Cluster{UID: "6d5f0a3e-0000-4000-8000-000000000001", ResourceID: "/subscriptions/" + customer + "/resourceGroups/cust-rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c",
			Shard: "mgmt-1", SigningKey: []byte("sealed"), Status: &csv1.ClusterStatus{ClusterId: "cid", BaseDomainPrefix: "p"},
			Spec: &csv1.ClusterSpec{Location: "westus3", IdentityUrl: w.azure.URL + azurearm.CredentialsPath + "clusters/c", Platform: &csv1.Platform{SubscriptionId: customer, ManagedResourceGroup: "managed",
				SubnetId: in + "Microsoft.Network/virtualNetworks/vnet/subnets/sub", NetworkSecurityGroupId: in + "Microsoft.Network/networkSecurityGroups/nsg",
				ControlPlaneOperators: map[string]string{"ingress": in + "Microsoft.ManagedIdentity/userAssignedIdentities/cp-ingress"},
				DataPlaneOperators:    map[string]string{"image-registry": in + "Microsoft.ManagedIdentity/userAssignedIdentities/dp-registry"}}}},
		Works: []*fleet.Work{{ID: "1", Kind: fleet.HostedCluster}, {ID: "2", Kind: fleet.Namespaces}},
	}
	t.Works[0].Observed.Applied.Status, t.Works[0].Observed.EndpointHost = "True", endpoint
	return t
}

// settle attempts all due steps as a worker does, and skips the waits.
func (w *region) settle(t *fleet.ClusterAggregate) {
	w.Helper()
	ctx, cancel := eventually.Context(w)
	defer cancel()
	for {
		must.Do(w, w.steps.Region.Settle(w.now, t, nil))
		at, due := time.Time{}, false
		if t.Azure != nil {
			at, due = t.Azure.DueTime()
		}
		// A certificate is due again when it must be renewed, which is months away.
		if !due || at.Sub(w.now) > time.Hour {
			return
		}
		if at.After(w.now) {
			w.now = at
		}
		step := t.Azure.Next(w.now, nil)
		o := w.steps.Try(w.Context(), t, step)
		t.Azure.Record(w.now, o)
		if ctx.Err() != nil {
			w.Fatalf("step %s does not finish: %+v", step.Kind, o)
		}
	}
}

func (w *region) remove(t *fleet.ClusterAggregate) {
	w.Helper()
	t.Cluster.DeleteTime = w.now
	t.Works = slices.DeleteFunc(t.Works, func(work *fleet.Work) bool { return work.Kind == fleet.HostedCluster })
	w.settle(t)
}

// attempt settles the cluster, attempts a step, records its outcome and settles the cluster again. next returns the step.
func (w *region) attempt(now func() time.Time, t *fleet.ClusterAggregate, next func() *fleet.AzureStep) fleet.AzureOutcome {
	w.Helper()
	must.Do(w, w.steps.Region.Settle(now(), t, nil))
	o := w.steps.Try(w.Context(), t, next())
	t.Azure.Record(now(), o)
	must.Do(w, w.steps.Region.Settle(now(), t, nil))
	return o
}

// conditionOf returns the text of a condition, or "" if there is none.
func conditionOf(conditions []*csv1.Condition, kind string) string {
	for _, c := range conditions {
		if c.GetType() == kind {
			return strings.TrimSuffix(c.GetStatus()+" "+c.GetReason()+": "+c.GetMessage(), ": ")
		}
	}
	return ""
}

// nothingLeft checks that Azure has none of the clusters' resources.
func (w *region) nothingLeft() {
	w.Helper()
	if left := w.inAzure(); len(left) > 0 {
		w.Errorf("left in Azure: %v", left)
	}
}

func (w *region) inAzure() []string {
	w.Helper()
	left := must.Get(w.azure.Leftovers())(w)
	slices.Sort(left)
	return left
}

// operations are the requests of the steps, each with the method, service and path that identify it.
var operations = map[string]struct {
	method, service, path string
	// skip is the number of earlier requests that match too. A client of the data plane of identities sends its first request
	// without a token.
	skip int
}{
	"GetGroup":          {"GET", "arm", "/resourceGroups/managed", 0},
	"PutGroup":          {"PUT", "arm", "/resourceGroups/managed", 0},
	"DeleteGroup":       {"DELETE", "arm", "/resourceGroups/managed", 1}, // the first one deletes the zone in it
	"GetZone":           {"GET", "arm", "/dnsZones/aro.p.", 0},
	"PutZone":           {"PUT", "arm", "/dnsZones/aro.p.", 0},
	"DeleteZone":        {"DELETE", "arm", "/dnsZones/aro.p.", 0},
	"GetDelegation":     {"GET", "arm", "/NS/aro.p", 0},
	"PutDelegation":     {"PUT", "arm", "/NS/aro.p", 0},
	"DeleteDelegation":  {"DELETE", "arm", "/NS/aro.p", 0},
	"GetAPIRecord":      {"GET", "arm", "/A/api.p", 0},
	"PutAPIRecord":      {"PUT", "arm", "/A/api.p", 0},
	"DeleteAPIRecord":   {"DELETE", "arm", "/A/api.p", 0},
	"PutOAuthRecord":    {"PUT", "arm", "/A/oauth.p", 0},
	"DeleteOAuthRecord": {"DELETE", "arm", "/A/oauth.p", 0},
	"GetSubnet":         {"GET", "arm", "/subnets/sub", 0},
	"Associate":         {"PUT", "arm", "/subnets/sub", 0},
	"Dissociate":        {"PUT", "arm", "/subnets/sub", 1},
	"GetIdentity":       {"GET", "arm", "/userAssignedIdentities/cp-ingress", 0},
	"ListRoles":         {"GET", "arm", "/roleAssignments", 0},
	"GetRole":           {"GET", "arm", "/roleDefinitions/", 0},
	"PutCredential":     {"PUT", "arm", "/federatedIdentityCredentials/", 0},
	"DeleteCredential":  {"DELETE", "arm", "/federatedIdentityCredentials/", 0},
	"IssueCredentials":  {"POST", "identity", "/identity/", 1},
	"SetSecret":         {"PUT", "vault", "/secrets/ingress-cid", 0},
	"DeleteSecret":      {"DELETE", "vault", "/secrets/ingress-cid", 0},
	"GetCertificate":    {"GET", "vault", "/pending", 0},
	"CreateCertificate": {"POST", "vault", "/create", 0},
	"DeleteCertificate": {"DELETE", "vault", "/certificates/kas-cid", 0},
	"PutKeys":           {"PUT", "blob", "/openid/v1/jwks", 0},
	"PutDiscovery":      {"PUT", "blob", "/openid-configuration", 0},
	"DeleteKeys":        {"DELETE", "blob", "/openid/v1/jwks", 0},
	"DeleteDiscovery":   {"DELETE", "blob", "/openid-configuration", 0},
}

// TestEveryOperationResumes disturbs each request of the steps: the response is lost, the request is lost, Azure throttles it,
// fails it or has another operation in progress. The steps must then reach the same resources as without the fault, and delete all of them.
func TestEveryOperationResumes(t *testing.T) {
	injected := map[string]faults.Rule{
		"LostResponse": {DropResponse: true},
		"LostRequest":  {DropRequest: true},
		"Throttled":    {Status: 429, RetryAfterMS: 60_000},
		"Failed":       {Status: 500},
		"Conflict":     {Status: 409, Code: "AnotherOperationInProgress", RetryAfterMS: 50},
	}
	delays := map[string]time.Duration{"Immediate": 0, "Delayed": time.Millisecond}
	if !nightly.Run() {
		injected, delays = map[string]faults.Rule{"LostResponse": injected["LostResponse"]}, map[string]time.Duration{"Delayed": time.Millisecond}
	}
	for name, delay := range delays {
		t.Run(name, func(t *testing.T) {
			w := newRegion(t, emulator.Options{OperationDelay: delay})
			undisturbed := w.cluster("192.0.2.1")
			w.settle(undisturbed)
			want := w.inAzure()
			w.remove(undisturbed)
			for operation, o := range operations {
				for fault, rule := range injected {
					t.Run(operation+fault, func(t *testing.T) {
						w := &region{T: t, azure: w.azure, steps: w.steps, now: time.Now()}
						rule.Methods, rule.Services, rule.Path, rule.Skip, rule.Count = []string{o.method}, []string{o.service}, o.path, o.skip, 1
						id := must.Get(w.azure.Faults().Add(rule))(t)
						cluster := w.cluster("192.0.2.1")
						w.settle(cluster)
						if diff := cmp.Diff(want, w.inAzure()); diff != "" {
							t.Errorf("in Azure (-want +got):\n%s", diff)
						}
						w.remove(cluster)
						w.nothingLeft()
						for _, r := range w.azure.Faults().List() {
							if r.ID == id && r.Fired != 1 {
								t.Errorf("%s %s matched %d times and was disturbed %d times", o.method, o.path, r.Matched, r.Fired)
							}
						}
						w.azure.Faults().Clear()
					})
				}
			}
		})
	}
}

// TestRecordsFollowTheEndpoint changes the endpoint to an address, a name, and one of the names that have records.
func TestRecordsFollowTheEndpoint(t *testing.T) {
	w := newRegion(t, emulator.Options{})
	cluster := w.cluster("")
	records := func() (found []string) {
		for _, id := range w.inAzure() {
			if kind, name := lastTwo(id); kind == "A" || kind == "CNAME" {
				found = append(found, kind+" "+name)
			}
		}
		return found
	}
	for _, step := range []struct {
		endpoint string
		want     []string
	}{
		{"", nil},
		{"192.0.2.1", []string{"A api-int.p", "A api.p", "A ignition-server.p", "A konnectivity-server.p", "A oauth.p"}},
		{"ingress.example.com", []string{"CNAME api-int.p", "CNAME api.p", "CNAME ignition-server.p", "CNAME konnectivity-server.p", "CNAME oauth.p"}},
		// A CNAME to itself is invalid. The publisher of the API server under this name owns its record.
		{"api-int.p." + zone, []string{"CNAME api.p", "CNAME ignition-server.p", "CNAME konnectivity-server.p", "CNAME oauth.p"}},
		{"192.0.2.2", []string{"A api-int.p", "A api.p", "A ignition-server.p", "A konnectivity-server.p", "A oauth.p"}},
	} {
		cluster.Works[0].Observed.EndpointHost = step.endpoint
		w.settle(cluster)
		if diff := cmp.Diff(step.want, records()); diff != "" {
			t.Errorf("with the endpoint %q (-want +got):\n%s", step.endpoint, diff)
		}
	}
	w.remove(cluster)
	w.nothingLeft()
}

// lastTwo returns the last two segments of a resource ID.
func lastTwo(id string) (kind, name string) {
	segments := strings.Split(id, "/")
	if len(segments) < 2 {
		return "", id
	}
	return segments[len(segments)-2], segments[len(segments)-1]
}
