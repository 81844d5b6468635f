package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	azurearm "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

const customerSubscription = "11111111-1111-1111-1111-111111111111"

// withAzure gives the region's clusters Azure resources.
func (r *region) withAzure(options emulator.Options) *region {
	r.t.Helper()
	options.DataDir, options.AssumeCustomers, options.Now = r.t.TempDir(), true, r.clock.now
	seed := emulatortest.Seed("0ulz.westus3.aroapp-hcp.io")
	seed.Roles, seed.Assignments = options.Seed.Roles, options.Seed.Assignments
	options.Seed = seed
	started := must.Get(emulatortest.Start(options))(r.t)
	r.t.Cleanup(func() {
		if err := started.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.azure, r.azureWire = started, started.HTTP()
	return r
}

// serviceRights returns the roles that the infrastructure of a region and the registrations of customers assign to Cluster Service. Without
// them, the caller of the emulator may do everything, because tests are the customer too.
func serviceRights() emulator.Seed {
	seed := emulator.Seed{Roles: []rbac.Role{{ID: rbac.CustomerRoleID, Name: rbac.CustomerRoleName, Actions: rbac.CustomerRoleActions()}, rbac.CredentialsRole()}}
	for role, scope := range map[string]string{rbac.CustomerRoleID: "/subscriptions/" + customerSubscription, azurearm.DNSZoneContributorRole: emulatortest.Group,
		azurearm.CertificatesOfficerRole: emulatortest.Vault, rbac.CredentialsRole().ID: emulatortest.Vault, azurearm.BlobDataContributorRole: emulatortest.Account} {
		seed.Assignments = append(seed.Assignments, azurearm.SeedAssignment{PrincipalID: entratest.ObjectID, Role: role, Scope: scope})
	}
	return seed
}

// azureSteps connects a Cluster Service to the region's Azure emulator and configures the renderer for it.
func (r *region) azureSteps(renderer *render.Renderer) *azure.Steps {
	if r.azure == nil {
		return nil
	}
	renderer.Region.AzureKinds = fleet.AzureKinds()
	settings := config.AzureResources{ResourceManager: r.azure.URL, Audience: "https://management.azure.com", SubscriptionID: emulatortest.Subscription,
		ResourceGroup: "region", Vault: r.azure.URL, CertificateIssuer: "OneCertV2-PublicCA", CAFile: "the emulator's",
		Documents:         config.DocumentStore{Account: r.azure.URL + "/oidc", Container: "issuers"},
		ManagedIdentities: &config.ManagedIdentities{Vault: r.azure.URL, Endpoint: r.azure.URL + azurearm.CredentialsPath, Audience: azurearm.IdentityAudience}}
	clients := azure.NewSDK(settings, r.azure.Tokens, r.azureWire)
	return &azure.Steps{Clients: clients, Capacity: azure.NewCapacity(clients, r.clock.now), Region: renderer.Region, Config: settings, Location: "westus3", Open: renderer.Open, Now: r.clock.now}
}

// azureRequest returns a cluster with identities for all operators.
func (r *region) azureRequest(name string) *csv1.ApplyClusterRequest {
	request := applyRequest(name, 1)
	identity := func(role string) string {
		return "/subscriptions/" + customerSubscription + "/resourceGroups/cust-rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + role
	}
	if r.azure != nil {
		request.Spec.IdentityUrl = "https://identity.example" + request.ResourceId + "?tid=tenant"
	}
	p := request.Spec.Platform
	p.ControlPlaneOperators, p.DataPlaneOperators = map[string]string{}, map[string]string{}
	for _, operator := range []string{"cluster-api-azure", "control-plane", "cloud-controller-manager", "ingress", "disk-csi-driver", "file-csi-driver", "image-registry", "cloud-network-config"} {
		p.ControlPlaneOperators[operator] = identity("cp-" + operator)
	}
	for _, operator := range []string{"disk-csi-driver", "file-csi-driver", "image-registry"} {
		p.DataPlaneOperators[operator] = identity("dp-" + operator)
	}
	p.ServiceManagedIdentity = identity("service")
	return request
}

// inAzure lists what is in Azure, with names normalized so that all clusters are comparable.
func (r *region) inAzure(c *csv1.Cluster) []string {
	r.t.Helper()
	left := must.Get(r.azure.Leftovers())(r.t)
	if c != nil {
		names := strings.NewReplacer(c.GetStatus().GetClusterId(), "CID", c.GetStatus().GetBaseDomainPrefix(), "PREFIX", c.GetSpec().GetPlatform().GetManagedResourceGroup(), "MANAGED")
		for i := range left {
			left[i] = names.Replace(left[i])
		}
	}
	slices.Sort(left)
	return left
}

// nothingInAzure checks that Azure has nothing of a deleted cluster.
func (r *region) nothingInAzure(t *testing.T, deleted *csv1.Cluster) {
	t.Helper()
	if left := r.inAzure(deleted); len(left) > 0 {
		t.Errorf("left in Azure: %v", left)
	}
}

// everything returns what a cluster has in Azure.
func everything() []string {
	const (
		customer = "/subscriptions/" + customerSubscription + "/resourceGroups/"
		network  = customer + "cust-rg/providers/Microsoft.Network/"
		zone     = customer + "MANAGED/providers/Microsoft.Network/dnsZones/aro.PREFIX.0ulz.westus3.aroapp-hcp.io"
		identity = customer + "cust-rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/dp-"
		records  = emulatortest.Group + "/providers/Microsoft.Network/dnsZones/0ulz.westus3.aroapp-hcp.io"
	)
	all := []string{customer + "MANAGED", zone, zone + "/NS/@", zone + "/SOA/@", records + "/NS/aro.PREFIX", records + "/A/api.PREFIX",
		network + "virtualNetworks/vnet/subnets/sub with " + network + "networkSecurityGroups/nsg",
		"certificates/kas-CID", "blobs/oidc/issuers/CID/.well-known/openid-configuration", "blobs/oidc/issuers/CID/openid/v1/jwks"}
	for _, service := range []string{"api-int", "oauth", "konnectivity-server", "ignition-server"} {
		all = append(all, records+"/A/"+service+".PREFIX")
	}
	for operator, accounts := range map[string][]string{"disk-csi-driver": {"disk-operator", "disk-controller", "disk-node"},
		"file-csi-driver": {"file-operator", "file-controller", "file-node"}, "image-registry": {"registry", "registry-operator"}} {
		for _, account := range accounts {
			all = append(all, identity+operator+"/federatedIdentityCredentials/CID-"+account)
		}
	}
	for _, short := range []string{"ccm", "capz", "cpo", "registry", "ingress", "network", "disk", "file"} {
		all = append(all, "secrets/"+short+"-CID")
	}
	slices.Sort(all)
	return all
}

// writes counts the mutating requests by method and path. It lists the requests whose URL HTTP/1.1 does not permit.
type writes struct {
	next      http.RoundTripper
	mu        sync.Mutex
	made      map[string]int
	malformed []string
}

func (w *writes) Do(request *http.Request) (*http.Response, error) {
	if strings.Contains(request.URL.RawQuery, " ") {
		w.mu.Lock()
		w.malformed = append(w.malformed, request.URL.RawQuery)
		w.mu.Unlock()
	}
	// The Key Vault client first sends a request without a token to discover the authority.
	if request.Method != http.MethodGet && request.Method != http.MethodHead && request.Header.Get("Authorization") != "" {
		w.mu.Lock()
		w.made[request.Method+" "+request.URL.Path]++
		w.mu.Unlock()
	}
	return w.next.RoundTrip(request)
}

// TestAzureResources creates and deletes a cluster with all Azure resources, with immediate and with long-running
// operations. Cluster Service has the rights that it has in a region.
func TestAzureResources(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"AtOnce": 0, "Long": 40 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t).withAzure(emulator.Options{OperationDelay: delay, Seed: serviceRights()})
			wire := &writes{next: r.azure.HTTP().Transport, made: map[string]int{}}
			r.azureWire = wire
			r.play()
			service := r.start(nil)
			request := r.azureRequest("c")
			ready := service.applyUntilReady(t, request)
			if diff := cmp.Diff(everything(), r.inAzure(ready)); diff != "" {
				t.Errorf("Azure resources of a ready cluster (-want +got):\n%s", diff)
			}
			if got := progressOf(ready, "azure"); got != "Ready: All 13 Azure resources of the cluster exist." {
				t.Errorf("progress in Azure is %q", got)
			}
			checkDocuments(t, r, ready)
			deleted := service.removed(t, request.Uid)
			r.nothingInAzure(t, deleted)
			steps := map[string]bool{}
			for _, s := range deleted.GetStatus().GetDeletion().GetSteps() {
				steps[s.GetName()] = s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_DONE
			}
			for _, kind := range fleet.AzureKinds() {
				if !steps["azure/"+string(kind)] {
					t.Errorf("azure/%s is not done in the deletion graph: %v", kind, steps)
				}
			}
			if len(wire.malformed) > 0 {
				t.Errorf("malformed queries: %q", wire.malformed)
			}
			for what, times := range wire.made {
				once := times == 1
				if delay > 0 && strings.HasPrefix(what, "DELETE") {
					once = true // repeated, because it takes time
				}
				if strings.HasSuffix(what, "/subnets/sub") {
					once = times == 2 // associated, dissociated
				}
				if !once {
					t.Errorf("%s was sent %d times", what, times)
				}
			}
		})
	}
}

// slowSubnet delays the first request for the subnet until another step requests a role definition.
type slowSubnet struct {
	next  http.RoundTripper
	asked sync.Once
	roles chan struct{}
	// timedOut reports that the request ended before that.
	delayed, timedOut atomic.Bool
}

func (s *slowSubnet) Do(request *http.Request) (*http.Response, error) {
	switch {
	case strings.Contains(strings.ToLower(request.URL.Path), "/roledefinitions/"):
		s.asked.Do(func() { close(s.roles) })
	case strings.HasSuffix(request.URL.Path, "/subnets/sub") && !s.delayed.Swap(true):
		select {
		case <-s.roles:
		case <-request.Context().Done():
			s.timedOut.Store(true)
		}
	}
	return s.next.RoundTrip(request)
}

// TestAzureStepsDoNotDelayOthers delays the request of a step until Cluster Service attempts the next step, which does not need it.
func TestAzureStepsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	wire := &slowSubnet{next: r.azure.HTTP().Transport, roles: make(chan struct{})}
	r.azureWire = wire
	r.play()
	service := r.start(nil)
	request := r.azureRequest("c")
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	service.awaitCluster(t, request.Uid, clusterReady(1))
	if !wire.delayed.Load() || wire.timedOut.Load() {
		t.Error("Cluster Service did not check the roles while it waited for the subnet")
	}
}

func progressOf(c *csv1.Cluster, layer string) string {
	for _, p := range c.GetStatus().GetProgress() {
		if p.GetLayer() == layer {
			return p.GetState() + ": " + p.GetMessage()
		}
	}
	return ""
}

// checkDocuments reads the issuer's documents without credentials.
func checkDocuments(t *testing.T, r *region, c *csv1.Cluster) {
	t.Helper()
	for name, want := range map[string]string{"/.well-known/openid-configuration": `"issuer":"` + c.GetStatus().GetIssuerUrl() + `"`, "/openid/v1/jwks": `"alg":"RS256"`} {
		response := must.Get(r.azure.HTTP().Get(r.azure.URL + "/oidc/issuers/" + c.GetStatus().GetClusterId() + name))(t)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: response %d, %s, %v, want it to contain %s", name, response.StatusCode, text, err, want)
		}
	}
}

// lifecycleInAzure creates and deletes a cluster and expects the same Azure resources regardless of the injected faults.
func lifecycleInAzure(t *testing.T, r *region, client func() *instance, name string) {
	t.Helper()
	request := r.azureRequest(name)
	untilDone(t, func(ctx context.Context) error { _, err := client().ApplyCluster(ctx, request); return err })
	var last *csv1.Cluster
	until := func(wanted func(*csv1.Cluster) bool) {
		untilDone(t, func(ctx context.Context) error {
			c, err := client().GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
			if err == nil && !wanted(c) {
				err = fmt.Errorf("%s is %v", name, c.GetStatus())
			}
			last = c
			return err
		})
	}
	until(clusterReady(1))
	if diff := cmp.Diff(everything(), r.inAzure(last)); diff != "" {
		t.Errorf("%s has in Azure (-want +got):\n%s", name, diff)
	}
	untilDone(t, func(ctx context.Context) error {
		_, err := client().DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: request.Uid})
		return err
	})
	until(clusterDeleted)
	if left := r.inAzure(last); len(left) > 0 {
		t.Errorf("left of %s in Azure: %v", name, left)
	}
}

// TestAzureFaultsAreTolerated makes Azure throttle, fail, respond slowly and lose responses.
func TestAzureFaultsAreTolerated(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	half := 0.5
	changing := []string{"PUT", "POST", "DELETE"}
	tests := map[string]struct {
		reason string
		rules  []faults.Rule
	}{
		"Throttled":    {"Azure's patience is honoured", []faults.Rule{{Status: 429, RetryAfterMS: 100, Probability: &half, Count: 12}}},
		"Failing":      {"what failed is tried again", []faults.Rule{{Status: 500, Probability: &half, Count: 10}}},
		"Conflicting":  {"somebody else is at it for a moment", []faults.Rule{{Methods: changing, Services: []string{"arm"}, Status: 409, Code: "AnotherOperationInProgress", RetryAfterMS: 50, Count: 8}}},
		"LostAnswers":  {"what was done although its answer was lost is found", []faults.Rule{{Methods: changing, DropResponse: true, Probability: &half, Count: 8}}},
		"LostRequests": {"what was never done is done", []faults.Rule{{DropRequest: true, Probability: &half, Count: 8}}},
		"Slow":         {"an answer takes its time", []faults.Rule{{LatencyMS: 20, Probability: &half}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t).withAzure(emulator.Options{OperationDelay: 10 * time.Millisecond, FaultSeed: 7})
			for _, rule := range tc.rules {
				must.Get(r.azure.Faults().Add(rule))(t)
			}
			r.play()
			service := r.start(nil)
			lifecycleInAzure(t, r, func() *instance { return service }, "c")
		})
	}
}

// TestSweepAzure crashes Cluster Service before and after each request that changes something in Azure, and at pairs of them, during
// the creation and deletion of a cluster. Crashes at commits and publishes are omitted: a sweep without Azure has them.
func TestSweepAzure(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		m := r.crashingInstance(d)
		defer m.stop()
		lifecycleInAzure(t, r, m.current.Load, fmt.Sprintf("c%d", d.Seed()))
		return nil // lifecycleInAzure compares the resources
	})
}

// TestDeletionToleratesMissingAzureResources removes resources in Azure before the cluster is deleted.
func TestDeletionToleratesMissingAzureResources(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).withAzure(emulator.Options{}).run()
	request := r.azureRequest("c")
	ready := service.applyUntilReady(t, request)
	remove := func(id, version, audience string) {
		t.Helper()
		if status, text, err := r.azure.Send(t.Context(), r.azure.Tokens, audience, http.MethodDelete, id+"?api-version="+version, ""); err != nil || status >= http.StatusBadRequest {
			t.Fatalf("DELETE %s: %d %s, %v", id, status, text, err)
		}
	}
	const manage = "https://management.azure.com"
	// The managed resource group with the zone in it, an identity, the virtual network of the customer and the
	// certificate.
	remove("/subscriptions/"+customerSubscription+"/resourceGroups/managed-c", "2021-04-01", manage)
	remove("/subscriptions/"+customerSubscription+"/resourceGroups/cust-rg", "2021-04-01", manage)
	remove("/certificates/kas-"+ready.GetStatus().GetClusterId(), "7.6", "https://vault.azure.net")
	deleted := service.removed(t, request.Uid)
	r.nothingInAzure(t, deleted)
}

// TestForeignAzureResourcesAreKept changes the owner of the managed resource group.
func TestForeignAzureResourcesAreKept(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	groups := must.Get(armresources.NewResourceGroupsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	must.Get(groups.CreateOrUpdate(t.Context(), "managed-c", armresources.ResourceGroup{Location: to.Ptr("westus3")}, nil))(t)
	service := r.start(nil)
	request := r.azureRequest("c")
	service.applyCluster(t, request, func(c *csv1.Cluster) bool {
		return strings.Contains(progressOf(c, "azure"), "RetryingResourceGroup: ") && strings.Contains(progressOf(c, "azure"), "managed-c exists and does not belong to this cluster")
	})
	service.removed(t, request.Uid)
	if _, err := groups.Get(t.Context(), "managed-c", nil); err != nil {
		t.Errorf("a foreign resource group was deleted: %v", err)
	}
}

// operatorWithoutRole creates the identity of the ingress operator without role assignments.
func (r *region) operatorWithoutRole(t *testing.T) armmsi.Identity {
	t.Helper()
	groups, err1 := armresources.NewResourceGroupsClient(customerSubscription, r.azure.Tokens, r.azure.Options())
	identities, err2 := armmsi.NewUserAssignedIdentitiesClient(customerSubscription, r.azure.Tokens, r.azure.Options())
	must.Do(t, errors.Join(err1, err2))
	must.Get(groups.CreateOrUpdate(t.Context(), "cust-rg", armresources.ResourceGroup{Location: to.Ptr("westus3")}, nil))(t)
	return must.Get(identities.CreateOrUpdate(t.Context(), "cust-rg", "cp-ingress", armmsi.Identity{Location: to.Ptr("westus3")}, nil))(t).Identity
}

// TestHostedClusterHasClientIDsFromAzure creates a cluster with an identity that does not exist. No HostedCluster is published
// until the customer creates the identity; then it has the client IDs that Azure reports. A second cluster with a missing
// identity is deleted.
func TestHostedClusterHasClientIDsFromAzure(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	ctx := t.Context()
	must.Get(r.azure.Faults().Add(faults.Rule{Methods: []string{"GET"}, Path: "/userAssignedIdentities/cp-ingress", Status: 404, Code: "ResourceNotFound"}))(t)
	service := r.start(nil)
	request, deleted := r.azureRequest("c"), r.azureRequest("d")
	for _, request := range []*csv1.ApplyClusterRequest{request, deleted} {
		must.Get(service.ApplyCluster(ctx, request))(t)
	}
	// A restart continues the step.
	service.stop()
	service = r.start(nil)
	missing := func(c *csv1.Cluster) bool {
		return strings.HasPrefix(progressOf(c, "azure"), "IdentityNotFound: ") && progressOf(c, "management-cluster") == ""
	}
	waiting := service.awaitCluster(t, request.Uid, missing)
	if said := progressOf(waiting, "azure"); !strings.Contains(said, "userAssignedIdentities.controlPlaneOperators[ingress] does not exist") {
		t.Errorf("the progress is %q", said)
	}
	if object, _ := r.rendered(t, waiting.GetStatus().GetClusterId(), "HostedCluster"); object != nil {
		t.Error("a HostedCluster was published without client IDs")
	}
	service.awaitCluster(t, deleted.Uid, missing)
	service.removed(t, deleted.Uid)

	r.azure.Faults().Clear()
	retry := &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("the identity exists now")}
	must.Get(service.RetryCluster(ctx, retry))(t)
	ready := service.awaitCluster(t, request.Uid, clusterReady(1))
	object, _ := r.rendered(t, ready.GetStatus().GetClusterId(), "HostedCluster")
	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	text := fmt.Sprint(object)
	for _, operators := range []map[string]string{request.Spec.Platform.ControlPlaneOperators, request.Spec.Platform.DataPlaneOperators} {
		for operator, id := range operators {
			found := must.Get(identities.Get(ctx, "cust-rg", id[strings.LastIndex(id, "/")+1:], nil))(t)
			if !strings.Contains(text, *found.Properties.ClientID) {
				t.Errorf("the HostedCluster has no client ID of %s", operator)
			}
			want := &csv1.UserAssignedIdentity{ClientId: *found.Properties.ClientID, PrincipalId: *found.Properties.PrincipalID}
			if got := ready.GetStatus().GetIdentities()[strings.ToLower(id)]; !proto.Equal(got, want) {
				t.Errorf("the reported identity of %s is %v, want %v", operator, got, want)
			}
		}
	}
}

// TestRenewedCertificateIsServed issues certificates that are valid for a day and advances the clock to the last third of
// it, in which they are renewed. Each new version in the vault reaches the management cluster without an action, a
// rejection by the issuer is reported and counted, and the cluster stays ready.
func TestRenewedCertificateIsServed(t *testing.T) {
	t.Parallel()
	const lifetime = 24 * time.Hour
	const untilRenewal, untilOverdue = lifetime * 17 / 24, lifetime * 4 / 24
	r := newRegion(t).withAzure(emulator.Options{CertificateLifetime: lifetime, OperationDelay: 20 * time.Millisecond})
	r.servingCertificates = true
	r.play()
	service := r.start(nil)
	ctx := t.Context()
	request := r.azureRequest("c")
	ready := service.applyUntilReady(t, request)
	id := ready.GetStatus().GetClusterId()
	vault := must.Get(azcertificates.NewClient(r.azure.URL, r.azure.Tokens, &azcertificates.ClientOptions{ClientOptions: r.azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	newest := func() string {
		t.Helper()
		found, err := vault.GetCertificate(ctx, "kas-"+id, "", nil)
		if err != nil || len(found.CER) == 0 {
			t.Fatalf("the vault returns no certificate: %v", err)
		}
		return found.ID.Version()
	}
	// fetched returns the version that the management cluster has to fetch.
	fetched := func() string {
		o, _ := r.rendered(t, id, "SecretSync")
		spec, _ := o["spec"].(map[string]any)
		version, _ := spec["forceSynchronization"].(string)
		return version
	}
	versions := map[string]bool{newest(): true}
	for range 3 {
		r.clock.advance(untilRenewal)
		awaitCondition(t, "the next version to be fetched", func() bool {
			version := fetched()
			return version != "" && !versions[version] && version == newest()
		})
		versions[fetched()] = true
	}

	rule := must.Get(r.azure.Faults().Add(faults.Rule{Services: []string{emulator.ServiceIssuer}, Status: http.StatusForbidden, Code: "QuotaExceeded"}))(t)
	r.clock.advance(untilRenewal)
	failing := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return strings.HasPrefix(progressOf(c, "azure"), "RenewalFailing: ")
	})
	if said := progressOf(failing, "azure"); !strings.Contains(said, "renew the API server's certificate, which expires at") || !strings.Contains(said, "QuotaExceeded") {
		t.Errorf("progress is %q", said)
	}
	r.clock.advance(untilOverdue)
	awaitCondition(t, "the metric", func() bool { return service.measures(1, "cluster_service_certificates_overdue") == nil })
	if first, err := service.metric("cluster_service_certificates_first_end_seconds"); err != nil || first == 0 {
		t.Errorf("the metric of the first expiry is not set: %v", err)
	}
	before := newest()
	r.azure.Faults().Remove(rule)
	r.clock.advance(time.Hour) // the next attempt is due
	awaitCondition(t, "the renewal to go on", func() bool { return newest() != before && fetched() == newest() })
	healed := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return strings.HasPrefix(progressOf(c, "azure"), "Ready: ") })
	if s := healed.GetStatus(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetObservedGeneration() != 1 {
		t.Errorf("the cluster is %v at generation %d", s.GetPhase(), s.GetObservedGeneration())
	}
	deleted := service.removed(t, request.Uid)
	r.nothingInAzure(t, deleted)
}

// TestRecreatedIdentitiesAreFollowed deletes two identities of a ready cluster and creates them again with the same names. The
// next update reads them: the HostedCluster gets their client IDs, their federated credentials are created again, and the
// customer must assign the roles again.
func TestRecreatedIdentitiesAreFollowed(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	ctx := t.Context()
	service := r.start(nil)
	request := r.azureRequest("c")
	before := service.applyUntilReady(t, request).GetStatus()
	controlPlane, dataPlane := request.Spec.Platform.ControlPlaneOperators["ingress"], request.Spec.Platform.DataPlaneOperators["image-registry"]
	hostedCluster := func() string {
		object, _ := r.rendered(t, before.GetClusterId(), "HostedCluster")
		return fmt.Sprint(object)
	}
	inAzure := func(state string) func(c *csv1.Cluster) bool {
		return func(c *csv1.Cluster) bool { return strings.HasPrefix(progressOf(c, "azure"), state+": ") }
	}
	retry := func(reason string) {
		t.Helper()
		must.Get(service.RetryCluster(ctx, &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice(reason)}))(t)
	}

	// While an identity does not exist, the cluster stays as it is.
	must.Get(r.azure.Faults().Add(faults.Rule{Methods: []string{"GET"}, Path: "/userAssignedIdentities/cp-ingress", Status: 404, Code: "ResourceNotFound"}))(t)
	retry("the customer reports failing operators")
	missing := service.awaitCluster(t, request.Uid, inAzure("IdentityDeleted"))
	if said := progressOf(missing, "azure"); !strings.Contains(said, "controlPlaneOperators[ingress] does not exist") {
		t.Errorf("the progress is %q", said)
	}
	if s := missing.GetStatus(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || len(s.GetIdentities()) != len(before.GetIdentities()) {
		t.Errorf("without the identity the cluster is %v with the identities %v", s.GetPhase(), s.GetIdentities())
	}
	r.azure.Faults().Clear()
	retry("the fault is cleared")
	service.awaitCluster(t, request.Uid, inAzure("Ready"))

	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	name := func(id string) string { return id[strings.LastIndex(id, "/")+1:] }
	for _, id := range []string{controlPlane, dataPlane} {
		must.Get(identities.Delete(ctx, "cust-rg", name(id), nil))(t)
	}
	// The emulator creates the other one when it is read, with all rights.
	recreated := r.operatorWithoutRole(t)

	request.Generation++
	unauthorized := service.applyCluster(t, request, inAzure("RetryingOperatorRoles")).GetStatus()
	if unauthorized.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY && unauthorized.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_UPDATING {
		t.Errorf("without the roles the cluster is %v", unauthorized.GetPhase())
	}
	roles := must.Get(armauthorization.NewRoleAssignmentsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	must.Get(roles.Create(ctx, "/subscriptions/"+customerSubscription+"/resourceGroups/cust-rg", uuid.NewString(), armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: recreated.Properties.PrincipalID, RoleDefinitionID: to.Ptr("/providers/Microsoft.Authorization/roleDefinitions/4d97b98b-1d4f-4787-a291-c67834d212e7")}}, nil))(t)
	retry("the roles are assigned")
	after := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return clusterReady(2)(c) && inAzure("Ready")(c) }).GetStatus()

	var changed []string
	for id, identity := range after.GetIdentities() {
		found := must.Get(identities.Get(ctx, "cust-rg", name(id), nil))(t)
		if identity.GetClientId() != *found.Properties.ClientID || identity.GetPrincipalId() != *found.Properties.PrincipalID {
			t.Errorf("%s is reported as %v", id, identity)
		}
		if identity.GetClientId() != before.GetIdentities()[id].GetClientId() {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	if want := []string{strings.ToLower(controlPlane), strings.ToLower(dataPlane)}; !slices.Equal(changed, want) || len(after.GetIdentities()) != len(before.GetIdentities()) {
		t.Errorf("changed identities are %v, want %v of %v", changed, want, slices.Collect(maps.Keys(before.GetIdentities())))
	}
	awaitCondition(t, "the HostedCluster with the new client IDs", func() bool {
		text := hostedCluster()
		for _, id := range changed {
			if !strings.Contains(text, after.GetIdentities()[id].GetClientId()) || strings.Contains(text, before.GetIdentities()[id].GetClientId()) {
				return false
			}
		}
		return true
	})
	credentials := must.Get(armmsi.NewFederatedIdentityCredentialsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	for _, account := range []string{"registry", "registry-operator"} {
		if _, err := credentials.Get(ctx, "cust-rg", name(dataPlane), before.GetClusterId()+"-"+account, nil); err != nil {
			t.Errorf("the new identity has no federated credential: %v", err)
		}
	}
}

// TestMissingQuotaIsExplainedAndHeals creates a node pool without the quota that its nodes need. Cluster Service has the rights that it has in a
// region. The node pool states what is missing, the cluster is ready nevertheless, and the condition becomes True without another request when the
// quota is raised.
func TestMissingQuotaIsExplainedAndHeals(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{Seed: serviceRights()})
	quota := func(limit int64) {
		must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customerSubscription, Quotas: map[string]azurearm.ComputeQuota{"cores": {Limit: limit}}}))
	}
	quota(10)
	var hasQuota atomic.Bool
	r.runManagementClustersWith(func(object maestrotest.Object) {
		if object["kind"] == "NodePool" && !hasQuota.Load() {
			object["status"].(maestrotest.Object)["replicas"] = float64(0)
		}
	})
	service := r.start(nil)
	request := r.azureRequest("c")
	service.applyUntilReady(t, request)
	pool := poolRequest(request, "np", 3)
	must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	condition := func(status string) func(p *csv1.NodePool) bool {
		return func(p *csv1.NodePool) bool {
			return conditionOf(p.GetStatus().GetConditions(), clusterstatus.RequirementsValid).GetStatus() == status
		}
	}
	unmet := service.awaitPool(t, pool.Uid, condition("False"))
	entry := clusterstatus.AwaitedLayer(unmet.GetStatus().GetProgress())
	if entry.GetState() != clusterstatus.StateRequirementsUnmet || !strings.HasPrefix(entry.GetMessage(), "properties.platform.vmSize: the missing nodes (3 of the size Standard_D8s_v3) need 24 cores") {
		t.Errorf("the node pool waits for %v", entry)
	}
	if entry := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}))(t); entry.GetConcern().GetSubjectResourceId() != pool.ResourceId || entry.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
		t.Errorf("the cluster is %s and waits for %v", entry.GetStatus().GetPhase(), entry.GetConcern())
	}
	must.Do(t, service.measures(1, "cluster_service_azure_capacity_requests_total", "quotas", "200"))
	quota(1000)
	r.clock.advance(5 * time.Minute)
	service.awaitPool(t, pool.Uid, condition("True"))
	hasQuota.Store(true)
	r.maestro.Touch()
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return poolReady(p) && condition("True")(p) })
}
