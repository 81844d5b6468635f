package emulator_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// The resources of the tests of the catalogue, and their api-versions.
const (
	cosmosID      = emulatortest.Group + "/providers/Microsoft.DocumentDB/databaseAccounts/hcpm-test"
	databaseID    = cosmosID + "/sqlDatabases/hcp"
	clusterID     = emulatortest.Group + "/providers/Microsoft.ContainerService/managedClusters/svc"
	accountID     = emulatortest.Group + "/providers/Microsoft.Storage/storageAccounts/hcpmtest"
	cosmosVersion = "2024-05-15"
	aksVersion    = "2024-05-01"
	vaultID       = emulatortest.Group + "/providers/Microsoft.KeyVault/vaults/hcpm-test-etcd"
	vaultVersion  = "2023-07-01"
)

// generic is a client for resources of all types.
type generic struct {
	*armresources.Client
	t *testing.T
}

func newGeneric(t *testing.T, azure *emulatortest.Azure) generic {
	t.Helper()
	return generic{must.Get(armresources.NewClient(emulatortest.Subscription, azure.Tokens, azure.Options()))(t), t}
}

// tryPut writes a resource and polls until the operation has completed.
func (g generic) tryPut(id, version string, resource armresources.GenericResource) (armresources.GenericResource, error) {
	poller, err := g.BeginCreateOrUpdateByID(g.t.Context(), id, version, resource, nil)
	if err != nil {
		return armresources.GenericResource{}, err
	}
	written, err := poller.PollUntilDone(g.t.Context(), pollFast)
	return written.GenericResource, err
}

func (g generic) put(id, version string, resource armresources.GenericResource) armresources.GenericResource {
	g.t.Helper()
	written, err := g.tryPut(id, version, resource)
	return must.Get(written, err)(g.t)
}

// property returns a property of a resource.
func property(t *testing.T, r armresources.GenericResource, path ...string) any {
	t.Helper()
	value := r.Properties
	for _, name := range path {
		inner, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("the properties %v have no %v", r.Properties, path)
		}
		value = inner[name]
	}
	return value
}

func located(properties map[string]any) armresources.GenericResource {
	return armresources.GenericResource{Location: to.Ptr("West US 3"), Properties: properties}
}

func TestStoredResources(t *testing.T) {
	withAndWithoutDelay(t, func(t *testing.T, azure *emulatortest.Azure) {
		client, ctx := newGeneric(t, azure), t.Context()
		account := located(map[string]any{"databaseAccountOfferType": "Standard", "disableLocalAuth": true, "locations": []any{map[string]any{"locationName": "westus3"}}})
		account.Kind, account.Tags = to.Ptr("GlobalDocumentDB"), map[string]*string{"purpose": to.Ptr("test")}
		created := client.put(cosmosID, cosmosVersion, account)
		if *created.Location != "westus3" || *created.Kind != "GlobalDocumentDB" || property(t, created, "disableLocalAuth") != true ||
			property(t, created, "documentEndpoint") != "https://hcpm-test.documents.azure.com:443/" || property(t, created, "provisioningState") != "Succeeded" {
			t.Errorf("created %+v %v", created, created.Properties)
		}
		client.put(databaseID, cosmosVersion, armresources.GenericResource{Properties: map[string]any{"resource": map[string]any{"id": "hcp"}}})

		// The children of a deleted resource are deleted.
		deleted, err := client.BeginDeleteByID(ctx, cosmosID, cosmosVersion, nil)
		_, err = must.Get(deleted, err)(t).PollUntilDone(ctx, pollFast)
		must.Do(t, err)
		_, err = client.GetByID(ctx, databaseID, cosmosVersion, nil)
		wantError(t, err, http.StatusNotFound, "ResourceNotFound")
		if left := must.Get(azure.Leftovers())(t); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// TestStoredResourcesAreListed lists by resource group, by subscription and by parent.
func TestStoredResourcesAreListed(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	client.put(cosmosID, cosmosVersion, located(map[string]any{}))
	client.put(databaseID, cosmosVersion, armresources.GenericResource{Properties: map[string]any{}})
	admin := emulatortest.Subscription
	for _, path := range []string{
		emulatortest.Group + "/providers/Microsoft.DocumentDB/databaseAccounts", "/subscriptions/" + admin + "/providers/Microsoft.DocumentDB/databaseAccounts", cosmosID + "/sqlDatabases",
	} {
		status, body := sendOwner(t, azure, http.MethodGet, path+"?api-version="+cosmosVersion, "")
		if status != http.StatusOK || strings.Count(body, `"id":`) != 1 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestStoredResourcesAreChecked checks what Resource Manager checks for all types.
func TestStoredResourcesAreChecked(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	client.put(cosmosID, cosmosVersion, located(map[string]any{}))
	client.put(databaseID, cosmosVersion, armresources.GenericResource{Properties: map[string]any{}})
	container := databaseID + "/containers/Resources"
	partitioned := func(path string) map[string]any {
		return map[string]any{"resource": map[string]any{"id": "Resources", "partitionKey": map[string]any{"paths": []any{path}}}}
	}
	client.put(container, cosmosVersion, armresources.GenericResource{Properties: partitioned("/partitionKey")})
	client.put(accountID, "2023-05-01", located(map[string]any{}))
	for _, c := range []struct {
		reason, id, version string
		resource            armresources.GenericResource
		status              int
		code                string
	}{
		{"an api-version that does not exist", cosmosID, "2001-01-01", located(nil), 400, "InvalidResourceType"},
		{"a parent that does not exist", cosmosID + "x/sqlDatabases/hcp", cosmosVersion, armresources.GenericResource{}, 404, "ParentResourceNotFound"},
		{"a grandparent that does not exist", cosmosID + "/sqlDatabases/other/containers/a", cosmosVersion, armresources.GenericResource{}, 404, "ParentResourceNotFound"},
		{"a resource group that does not exist", strings.Replace(cosmosID, "/region/", "/other/", 1), cosmosVersion, located(nil), 404, "ResourceGroupNotFound"},
		{"no location", clusterID, aksVersion, armresources.GenericResource{}, 400, "LocationRequired"},
		{"a region for a global type", emulatortest.Group + "/providers/Microsoft.Cdn/profiles/p", "2024-02-01", located(nil), 400, "LocationNotAvailableForResourceType"},
		{"another location", cosmosID, cosmosVersion, armresources.GenericResource{Location: to.Ptr("uksouth")}, 409, "InvalidResourceLocation"},
		{"a name that another group has", strings.Replace(cosmosID, "/region/", "/second/", 1), cosmosVersion, located(nil), 409, "BadRequest"},
		{"a name that the type does not accept", accountID + "_", "2023-05-01", located(nil), 400, "InvalidResourceName"},
		{"another partition key", container, cosmosVersion, armresources.GenericResource{Properties: partitioned("/other")}, 400, "PropertyChangeNotAllowed"},
		{"a subnet that does not exist", clusterID, aksVersion, located(map[string]any{"agentPoolProfiles": []any{map[string]any{"vnetSubnetID": emulatortest.Group + "/providers/Microsoft.Network/virtualNetworks/v/subnets/s"}}}), 400, "InvalidResourceReference"},
		{"an identity that does not exist", clusterID, aksVersion, armresources.GenericResource{Location: to.Ptr("westus3"), Identity: &armresources.Identity{Type: to.Ptr(armresources.ResourceIdentityTypeUserAssigned),
			UserAssignedIdentities: map[string]*armresources.IdentityUserAssignedIdentitiesValue{emulatortest.Group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/x": {}}}}, 400, "FailedIdentityOperation"},
		{"an extension of a cluster that does not exist", clusterID + "/providers/Microsoft.Insights/dataCollectionRuleAssociations/metrics", "2022-06-01", armresources.GenericResource{}, 404, "ParentResourceNotFound"},
		{"an association with a rule that does not exist", accountID + "/providers/Microsoft.Insights/dataCollectionRuleAssociations/metrics", "2022-06-01", armresources.GenericResource{Properties: map[string]any{
			"dataCollectionRuleId": emulatortest.Group + "/providers/Microsoft.Insights/dataCollectionRules/x"}}, 400, "InvalidResourceReference"},
		{"a type that is not emulated", emulatortest.Group + "/providers/Microsoft.Compute/disks/d", "2024-03-01", located(nil), 501, "NotImplemented"},
	} {
		if strings.Contains(c.id, "/second/") {
			group := armresources.ResourceGroup{Location: to.Ptr("westus3")}
			groups := must.Get(armresources.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t).NewResourceGroupsClient()
			must.Do(t, func() error { _, err := groups.CreateOrUpdate(t.Context(), "second", group, nil); return err }())
		}
		if _, err := client.tryPut(c.id, c.version, c.resource); true {
			t.Log(c.reason)
			wantError(t, err, c.status, c.code)
		}
	}
	status, body := sendOwner(t, azure, http.MethodPut, cosmosID+"?api-version="+cosmosVersion, `{"location":"westus3","property":{}}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "'property'") {
		t.Errorf("a field that Resource Manager does not know: %d %s", status, body)
	}
	status, body = sendOwner(t, azure, http.MethodPatch, cosmosID+"?api-version="+cosmosVersion, `{}`)
	if status != http.StatusNotImplemented {
		t.Errorf("a patch: %d %s", status, body)
	}
	status, body = sendOwner(t, azure, http.MethodDelete, accountID+"/blobServices/default?api-version=2023-05-01", "")
	if status != http.StatusMethodNotAllowed {
		t.Errorf("deleting the blob service of an account: %d %s", status, body)
	}
}

// TestWritesDuringAnOperation checks that neither a resource nor its children change while an operation on it is in progress.
func TestWritesDuringAnOperation(t *testing.T) {
	azure := start(t, emulator.Options{OperationDelay: time.Hour})
	path := cosmosID + "?api-version=" + cosmosVersion
	status, body := sendOwner(t, azure, http.MethodPut, path, `{"location":"westus3"}`)
	if status != http.StatusCreated || !strings.Contains(body, `"Creating"`) {
		t.Fatalf("a creation: %d %s", status, body)
	}
	for _, c := range []struct{ method, path string }{{http.MethodPut, path}, {http.MethodDelete, path}, {http.MethodPut, databaseID + "?api-version=" + cosmosVersion}} {
		if status, body := sendOwner(t, azure, c.method, c.path, `{"location":"westus3"}`); status != http.StatusConflict || !strings.Contains(body, "AnotherOperationInProgress") {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

// TestSystemAssignedIdentity checks that a resource's identity can get a role, whose condition can change, and that it keeps its principal.
func TestSystemAssignedIdentity(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	cluster := located(map[string]any{"dnsPrefix": "svc", "oidcIssuerProfile": map[string]any{"enabled": true}})
	cluster.Identity = &armresources.Identity{Type: to.Ptr(armresources.ResourceIdentityTypeSystemAssigned)}
	created := client.put(clusterID, aksVersion, cluster)
	updated := client.put(clusterID, aksVersion, cluster)
	principal := *created.Identity.PrincipalID
	if principal == "" || *updated.Identity.PrincipalID != principal {
		t.Errorf("the principal changed from %s to %s", principal, *updated.Identity.PrincipalID)
	}
	issuer, _ := property(t, updated, "oidcIssuerProfile", "issuerURL").(string)
	if !strings.HasPrefix(issuer, "https://") || issuer != property(t, created, "oidcIssuerProfile", "issuerURL") {
		t.Errorf("the issuer is %q", issuer)
	}
	assignments := must.Get(armauthorization.NewRoleAssignmentsClient(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	wanted := armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: &principal, RoleDefinitionID: to.Ptr("/subscriptions/" + emulatortest.Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + arm.DNSZoneContributorRole)}}
	name := uuid.NewString()
	for range 2 { // the same assignment again changes nothing
		_, err := assignments.Create(t.Context(), emulatortest.Group, name, wanted, nil)
		must.Do(t, err)
	}
	if _, err := assignments.Create(t.Context(), emulatortest.Group, uuid.NewString(), wanted, nil); true {
		wantError(t, err, http.StatusConflict, "RoleAssignmentExists")
	}
	wanted.Properties.Condition = to.Ptr("true")
	_, err := assignments.Create(t.Context(), emulatortest.Group, name, wanted, nil)
	wantError(t, err, http.StatusBadRequest, "InvalidRoleAssignmentCondition")
	wanted.Properties.Condition = to.Ptr(ownBlobs)
	must.Get(assignments.Create(t.Context(), emulatortest.Group, name, wanted, nil))(t)
	if read := must.Get(assignments.Get(t.Context(), emulatortest.Group, name, nil))(t); read.Properties.Condition == nil || *read.Properties.Condition != ownBlobs {
		t.Errorf("the changed assignment is %+v", read.Properties)
	}
	wanted.Properties.RoleDefinitionID = to.Ptr(arm.OwnerRole)
	_, err = assignments.Create(t.Context(), emulatortest.Group, name, wanted, nil)
	wantError(t, err, http.StatusBadRequest, "RoleAssignmentUpdateNotPermitted")
}

// TestClusterCanBeSentAsItWasRead sends a cluster with all properties that the provider computed, and one more of a newer api-version.
func TestClusterCanBeSentAsItWasRead(t *testing.T) {
	client := newGeneric(t, start(t, emulator.Options{}))
	client.put(clusterID, aksVersion, located(map[string]any{"dnsPrefix": "svc", "addonProfiles": map[string]any{"azureKeyvaultSecretsProvider": map[string]any{"enabled": true}}}))
	read, err := client.GetByID(t.Context(), clusterID, aksVersion, nil)
	must.Do(t, err)
	properties := read.Properties.(map[string]any)
	properties["serviceMeshProfile"] = map[string]any{"mode": "Istio"}
	delete(properties, "provisioningState")
	if sent := client.put(clusterID, "2026-02-01", armresources.GenericResource{Location: read.Location, Properties: properties}); property(t, sent, "serviceMeshProfile", "mode") != "Istio" {
		t.Errorf("the cluster has the properties %v", sent.Properties)
	}
}

// TestKeysArePermanent checks that Resource Manager creates a key once: a further write changes nothing, and a key exists as long as its vault.
func TestKeysArePermanent(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	client.put(vaultID, vaultVersion, located(map[string]any{}))
	key := armresources.GenericResource{Properties: map[string]any{"kty": "RSA", "keySize": 3072}}
	created := client.put(vaultID+"/keys/svc-1", vaultVersion, key)
	key.Properties.(map[string]any)["keySize"] = 2048
	again := client.put(vaultID+"/keys/svc-1", vaultVersion, key)
	uri, _ := property(t, created, "keyUriWithVersion").(string)
	if !strings.HasPrefix(uri, "https://hcpm-test-etcd.vault.azure.net/keys/svc-1/") || property(t, again, "keyUriWithVersion") != uri || property(t, again, "keySize") != 3072.0 {
		t.Errorf("the key was created as %v and written as %v", created.Properties, again.Properties)
	}
	if status, body := sendOwner(t, azure, http.MethodDelete, vaultID+"/keys/svc-1?api-version="+vaultVersion, ""); status != http.StatusMethodNotAllowed {
		t.Errorf("deleting a key: %d %s", status, body)
	}
	poller, err := client.BeginDeleteByID(t.Context(), vaultID, vaultVersion, nil)
	_, err = must.Get(poller, err)(t).PollUntilDone(t.Context(), pollFast)
	must.Do(t, err)
	_, err = client.GetByID(t.Context(), vaultID+"/keys/svc-1", vaultVersion, nil)
	wantError(t, err, http.StatusNotFound, "ResourceNotFound")
}

// TestKeyOfEtcd checks that a cluster can have a key for its etcd only if the version of the key exists and an identity of the cluster may
// encrypt and decrypt with it.
func TestKeyOfEtcd(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	identityID := emulatortest.Group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/control-plane"
	principal := property(t, client.put(identityID, "2023-01-31", located(map[string]any{})), "principalId").(string)
	client.put(vaultID, vaultVersion, located(map[string]any{}))
	uri := property(t, client.put(vaultID+"/keys/svc-1", vaultVersion, armresources.GenericResource{Properties: map[string]any{"kty": "RSA"}}), "keyUriWithVersion").(string)
	user := &armresources.Identity{Type: to.Ptr(armresources.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: map[string]*armresources.IdentityUserAssignedIdentitiesValue{identityID: {}}}
	cluster := func(identity *armresources.Identity, key, access string) armresources.GenericResource {
		r := located(map[string]any{"dnsPrefix": "svc", "securityProfile": map[string]any{"azureKeyVaultKms": map[string]any{"enabled": true, "keyId": key, "keyVaultNetworkAccess": access}}})
		r.Identity = identity
		return r
	}
	refused := func(r armresources.GenericResource, status int, code string) {
		t.Helper()
		_, err := client.tryPut(clusterID, aksVersion, r)
		wantError(t, err, status, code)
	}
	refused(cluster(user, uri[:strings.LastIndex(uri, "/")], "Public"), 400, "BadRequest") // the key without a version
	refused(cluster(nil, uri, "Public"), 400, "BadRequest")
	refused(cluster(user, uri, "Private"), 501, "NotImplemented")
	refused(cluster(user, uri, "Public"), 400, "BadRequest") // the identity has no role

	assignments := must.Get(armauthorization.NewRoleAssignmentsClient(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	_, err := assignments.Create(t.Context(), vaultID+"/keys/svc-1", uuid.NewString(), armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: &principal, RoleDefinitionID: to.Ptr("/subscriptions/" + emulatortest.Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + arm.CryptoUserRole)}}, nil)
	must.Do(t, err)
	if written := client.put(clusterID, aksVersion, cluster(user, uri, "Public")); property(t, written, "securityProfile", "azureKeyVaultKms", "keyId") != uri {
		t.Errorf("the cluster has the properties %v", written.Properties)
	}
}

// TestStoredResourcesNeedARole checks that the types of the catalogue are authorized as all others.
func TestStoredResourcesNeedARole(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if status, body := send(t, azure, nobodyID, armAudience, method, cosmosID+"?api-version="+cosmosVersion, `{"location":"westus3"}`); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
}

// TestContainersOfResourceManager checks that Blob Storage has the containers of Resource Manager, with their access and their immutability
// policies, and that what the seed has for an account gives way to the account that is created.
func TestContainersOfResourceManager(t *testing.T) {
	seed := emulatortest.Seed(zone)
	seed.Containers = append(seed.Containers, emulator.SeedContainer{Account: "hcpmtest", AccountID: accountID, Name: "documents"})
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed}))(t)
	t.Cleanup(func() { must.Do(t, azure.Close()) })
	arm, ctx := newGeneric(t, azure), t.Context()
	client := must.Get(container.NewClient(azure.URL+"/hcpmtest/documents", azure.Tokens, &container.ClientOptions{ClientOptions: azure.Options().ClientOptions}))(t)
	upload := func(name string) error {
		_, err := client.NewBlockBlobClient(name).UploadBuffer(ctx, []byte("content"), nil)
		return err
	}
	must.Do(t, upload("seeded"))
	arm.put(accountID, "2023-05-01", located(map[string]any{}))
	wantError(t, upload("early"), http.StatusNotFound, "ContainerNotFound")

	id := accountID + "/blobServices/default/containers/documents"
	arm.put(id, "2023-05-01", armresources.GenericResource{Properties: map[string]any{"publicAccess": "Blob"}})
	must.Do(t, upload("a"))
	response, err := azure.HTTP().Get(azure.URL + "/hcpmtest/documents/a")
	if must.Do(t, err); response.StatusCode != http.StatusOK {
		t.Errorf("a public blob is read with %s", response.Status)
	}
	must.Do(t, response.Body.Close())
	arm.put(id, "2023-05-01", armresources.GenericResource{Properties: map[string]any{"publicAccess": "None"}})
	response, err = azure.HTTP().Get(azure.URL + "/hcpmtest/documents/a")
	if must.Do(t, err); response.StatusCode == http.StatusOK {
		t.Error("a blob is public after the access was removed")
	}
	must.Do(t, response.Body.Close())

	policy := id + "/immutabilityPolicies/default"
	arm.put(policy, "2023-05-01", armresources.GenericResource{Properties: map[string]any{"immutabilityPeriodSinceCreationInDays": 5, "allowProtectedAppendWrites": true}})
	_, err = client.NewBlockBlobClient("a").Delete(ctx, nil)
	wantError(t, err, http.StatusConflict, "BlobImmutableDueToPolicy")
	for _, deleted := range []string{policy, id} {
		poller, err := arm.BeginDeleteByID(ctx, deleted, "2023-05-01", nil)
		_, err = must.Get(poller, err)(t).PollUntilDone(ctx, pollFast)
		must.Do(t, err)
	}
	wantError(t, upload("late"), http.StatusNotFound, "ContainerNotFound")
	arm.put(id, "2023-05-01", armresources.GenericResource{})
	if listed, err := client.NewListBlobsFlatPager(nil).NextPage(ctx); err != nil || len(listed.Segment.BlobItems) != 0 {
		t.Errorf("a container that was deleted and created again has blobs: %v", err)
	}
}
