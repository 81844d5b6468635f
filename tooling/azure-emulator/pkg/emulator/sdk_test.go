package emulator_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

const (
	zone         = "0ulz.westus3.example.com"
	subscription = "11111111-1111-1111-1111-111111111111"
)

// start starts an emulator with the seed of a region.
func start(t *testing.T, options emulator.Options) *emulatortest.Azure {
	t.Helper()
	if options.DataDir == "" {
		options.DataDir = t.TempDir()
	}
	options.Seed = emulatortest.Seed(zone)
	azure := must.Get(emulatortest.Start(options))(t)
	t.Cleanup(func() {
		if err := azure.Close(); err != nil {
			t.Error(err)
		}
	})
	return azure
}

// wantError checks that err is an error response with a status and a code.
func wantError(t *testing.T, err error, status int, code string) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status || response.ErrorCode != code {
		t.Errorf("got %v, want %d %s", err, status, code)
	}
}

// pollFast polls operations every millisecond.
var pollFast = &runtime.PollUntilDoneOptions{Frequency: time.Millisecond}

// withAndWithoutDelay runs test with operations that complete at once and with operations that take time.
func withAndWithoutDelay(t *testing.T, test func(t *testing.T, azure *emulatortest.Azure)) {
	for name, delay := range map[string]time.Duration{"NoDelay": 0, "Delay": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { test(t, start(t, emulator.Options{OperationDelay: delay})) })
	}
}

func TestResourceGroups(t *testing.T) {
	withAndWithoutDelay(t, func(t *testing.T, azure *emulatortest.Azure) {
		ctx := t.Context()
		groups := must.Get(armresources.NewClientFactory(subscription, azure.Tokens, azure.Options()))(t).NewResourceGroupsClient()
		if _, err := groups.Get(ctx, "managed", nil); true {
			wantError(t, err, http.StatusNotFound, "ResourceGroupNotFound")
		}
		group := armresources.ResourceGroup{Location: to.Ptr("westus3"), ManagedBy: to.Ptr("/owner"), Tags: map[string]*string{"a": to.Ptr("b")}}
		_, err := groups.CreateOrUpdate(ctx, "Managed", group, nil)
		must.Do(t, err)
		got, err := groups.Get(ctx, "managed", nil)
		must.Do(t, err)
		if *got.Name != "Managed" || *got.ManagedBy != "/owner" || *got.Tags["a"] != "b" || *got.Properties.ProvisioningState != "Succeeded" {
			t.Errorf("got %+v", got.ResourceGroup)
		}
		group.ManagedBy = to.Ptr("/other")
		_, err = groups.CreateOrUpdate(ctx, "managed", group, nil)
		wantError(t, err, http.StatusConflict, "ResourceGroupManagedByMismatch")
		poller, err := groups.BeginDelete(ctx, "managed", nil)
		_, err = must.Get(poller, err)(t).PollUntilDone(ctx, pollFast)
		must.Do(t, err)
		_, err = groups.BeginDelete(ctx, "managed", nil)
		wantError(t, err, http.StatusNotFound, "ResourceGroupNotFound")
	})
}

func TestListsHavePages(t *testing.T) {
	azure := start(t, emulator.Options{})
	groups := groupsClient(t, azure, azure.Tokens)
	var want []string
	for i := range 201 {
		name := fmt.Sprintf("group-%03d", i)
		_, err := groups.CreateOrUpdate(t.Context(), name, armresources.ResourceGroup{Location: to.Ptr("westus3")}, nil)
		must.Do(t, err)
		want = append(want, name)
	}
	var got []string
	pages := 0
	for pager := groups.NewListPager(nil); pager.More(); pages++ {
		page, err := pager.NextPage(t.Context())
		for _, g := range must.Get(page, err)(t).Value {
			got = append(got, *g.Name)
		}
	}
	if !slices.Equal(got, want) || pages != 3 {
		t.Errorf("%d groups in %d pages: %v", len(got), pages, got)
	}
}

func TestDNS(t *testing.T) {
	withAndWithoutDelay(t, func(t *testing.T, azure *emulatortest.Azure) {
		ctx := t.Context()
		factory := must.Get(armdns.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
		zones, records := factory.NewZonesClient(), factory.NewRecordSetsClient()
		_, err := zones.CreateOrUpdate(ctx, "nowhere", "c."+zone, armdns.Zone{Location: to.Ptr("global")}, nil)
		wantError(t, err, http.StatusNotFound, "ResourceGroupNotFound")
		child, err := zones.CreateOrUpdate(ctx, "region", "aro.c."+zone, armdns.Zone{Location: to.Ptr("global")}, nil)
		must.Do(t, err)
		if len(child.Properties.NameServers) != 4 || *child.Properties.NumberOfRecordSets != 2 {
			t.Errorf("zone %+v", child.Properties)
		}
		var servers []*armdns.NsRecord
		for _, s := range child.Properties.NameServers {
			servers = append(servers, &armdns.NsRecord{Nsdname: s})
		}
		delegation := armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: to.Ptr[int64](300), NsRecords: servers}}
		record, err := records.CreateOrUpdate(ctx, "region", zone, "aro.c", armdns.RecordTypeNS, delegation, nil)
		must.Do(t, err)
		if *record.Properties.Fqdn != "aro.c."+zone+"." || *record.Type != "Microsoft.Network/dnsZones/NS" || len(record.Properties.NsRecords) != 4 {
			t.Errorf("delegation %+v", record.RecordSet)
		}
		_, err = records.CreateOrUpdate(ctx, "region", zone, "aro.c", armdns.RecordTypeNS, delegation, &armdns.RecordSetsClientCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")})
		wantError(t, err, http.StatusPreconditionFailed, "PreconditionFailed")
		_, err = records.CreateOrUpdate(ctx, "region", zone, "api.c", armdns.RecordTypeA,
			armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: to.Ptr[int64](300), ARecords: []*armdns.ARecord{{IPv4Address: to.Ptr("not an address")}}}}, nil)
		wantError(t, err, http.StatusBadRequest, "BadRequest")
		_, err = records.CreateOrUpdate(ctx, "region", zone, "aro.c", armdns.RecordTypeCNAME,
			armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: to.Ptr[int64](300), CnameRecord: &armdns.CnameRecord{Cname: to.Ptr("x.example.com")}}}, nil)
		wantError(t, err, http.StatusBadRequest, "CannotAddRecordSet")
		n := 0
		for pager := records.NewListByDNSZonePager("region", zone, nil); pager.More(); {
			page, err := pager.NextPage(ctx)
			n += len(must.Get(page, err)(t).Value)
		}
		if n != 3 {
			t.Errorf("the zone has %d record sets, want NS, SOA and the delegation", n)
		}
		_, err = records.Delete(ctx, "region", zone, "aro.c", armdns.RecordTypeNS, nil)
		must.Do(t, err)
		_, err = records.Get(ctx, "region", zone, "aro.c", armdns.RecordTypeNS, nil)
		wantError(t, err, http.StatusNotFound, "NotFound")
		poller, err := zones.BeginDelete(ctx, "region", "aro.c."+zone, nil)
		_, err = must.Get(poller, err)(t).PollUntilDone(ctx, pollFast)
		must.Do(t, err)
		_, err = zones.Get(ctx, "region", "aro.c."+zone, nil)
		wantError(t, err, http.StatusNotFound, "ResourceNotFound")
		_, err = zones.BeginDelete(ctx, "region", "aro.c."+zone, nil)
		must.Do(t, err)
	})
}

// TestOneOperationAtATime checks that a resource with an operation in progress rejects the next one.
func TestOneOperationAtATime(t *testing.T) {
	azure, ctx := start(t, emulator.Options{OperationDelay: time.Hour}), t.Context()
	groups := must.Get(armresources.NewClientFactory(subscription, azure.Tokens, azure.Options()))(t).NewResourceGroupsClient()
	group := armresources.ResourceGroup{Location: to.Ptr("westus3"), ManagedBy: to.Ptr("/owner")}
	_, err := groups.CreateOrUpdate(ctx, "managed", group, nil)
	must.Do(t, err)
	_, err = groups.BeginDelete(ctx, "managed", nil)
	must.Do(t, err)
	_, err = groups.CreateOrUpdate(ctx, "managed", group, nil)
	wantError(t, err, http.StatusConflict, "AnotherOperationInProgress")
}

func TestIdentitiesAndRoles(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	factory := must.Get(armmsi.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	identities, credentials := factory.NewUserAssignedIdentitiesClient(), factory.NewFederatedIdentityCredentialsClient()
	identity, err := identities.CreateOrUpdate(ctx, "region", "registry", armmsi.Identity{Location: to.Ptr("westus3")}, nil)
	must.Do(t, err)
	again, err := identities.CreateOrUpdate(ctx, "region", "registry", armmsi.Identity{Location: to.Ptr("westus3")}, nil)
	if must.Do(t, err); *again.Properties.PrincipalID != *identity.Properties.PrincipalID {
		t.Error("a repeated PUT of an identity changed its principal")
	}
	federated := armmsi.FederatedIdentityCredential{Properties: &armmsi.FederatedIdentityCredentialProperties{
		Issuer: to.Ptr("https://issuer.example.com/c"), Subject: to.Ptr("system:serviceaccount:ns:sa"), Audiences: []*string{to.Ptr("openshift")}}}
	_, err = credentials.CreateOrUpdate(ctx, "region", "registry", "first", federated, nil)
	must.Do(t, err)
	_, err = credentials.CreateOrUpdate(ctx, "region", "registry", "second", federated, nil)
	wantError(t, err, http.StatusConflict, "Conflict")
	_, err = credentials.CreateOrUpdate(ctx, "region", "unknown", "first", federated, nil)
	wantError(t, err, http.StatusNotFound, "ParentResourceNotFound")
	_, err = credentials.Delete(ctx, "region", "registry", "first", nil)
	must.Do(t, err)

	roles := must.Get(armauthorization.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
	assignments, definitions := roles.NewRoleAssignmentsClient(), roles.NewRoleDefinitionsClient()
	const registry = "/providers/Microsoft.Authorization/roleDefinitions/8b32b316-c2f5-4ddf-b05b-83dacd2d08b5"
	definition, err := definitions.GetByID(ctx, registry, nil)
	if must.Do(t, err); len(definition.Properties.Permissions) != 1 || len(definition.Properties.Permissions[0].Actions) == 0 {
		t.Errorf("definition %+v", definition.Properties)
	}
	assignment := armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: identity.Properties.PrincipalID, RoleDefinitionID: to.Ptr("/subscriptions/" + emulatortest.Subscription + registry)}}
	name := uuid.NewString()
	_, err = assignments.Create(ctx, emulatortest.Group, name, assignment, nil)
	must.Do(t, err)
	_, err = assignments.Create(ctx, emulatortest.Group, uuid.NewString(), assignment, nil)
	wantError(t, err, http.StatusConflict, "RoleAssignmentExists")
	count := func(scope string) (n int) {
		for pager := assignments.NewListForScopePager(scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{
			Filter: to.Ptr("atScope() and assignedTo('" + *identity.Properties.PrincipalID + "')")}); pager.More(); {
			page, err := pager.NextPage(ctx)
			n += len(must.Get(page, err)(t).Value)
		}
		return n
	}
	if below, above := count(emulatortest.Group+"/providers/Microsoft.Network/virtualNetworks/v"), count("/subscriptions/"+emulatortest.Subscription); below != 1 || above != 0 {
		t.Errorf("the assignment is listed %d times below its scope and %d times above, want 1 and 0", below, above)
	}
	_, err = assignments.Delete(ctx, emulatortest.Group, name, nil)
	must.Do(t, err)
}

func TestCertificates(t *testing.T) {
	withAndWithoutDelay(t, func(t *testing.T, azure *emulatortest.Azure) {
		ctx := t.Context()
		client := must.Get(azcertificates.NewClient(azure.URL, azure.Tokens, &azcertificates.ClientOptions{
			ClientOptions: azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
		_, err := client.GetCertificate(ctx, "kas", "", nil)
		wantError(t, err, http.StatusNotFound, "CertificateNotFound")
		parameters := azcertificates.CreateCertificateParameters{CertificatePolicy: &azcertificates.CertificatePolicy{
			IssuerParameters:          &azcertificates.IssuerParameters{Name: to.Ptr("OneCertV2-PublicCA")},
			KeyProperties:             &azcertificates.KeyProperties{KeyType: to.Ptr(azcertificates.KeyTypeEC)},
			X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=api.c." + zone), SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{DNSNames: []*string{to.Ptr("api.c." + zone)}}},
		}}
		operation, err := client.CreateCertificate(ctx, "kas", parameters, nil)
		for must.Get(operation, err)(t); *operation.Status != "completed"; {
			next, err := client.GetCertificateOperation(ctx, "kas", nil)
			operation.CertificateOperation = must.Get(next, err)(t).CertificateOperation
		}
		found, err := client.GetCertificate(ctx, "kas", "", nil)
		if must.Do(t, err); len(found.CER) == 0 || found.ID.Name() != "kas" || found.ID.Version() == "" {
			t.Errorf("certificate %+v", found.Certificate)
		}
		parameters.CertificatePolicy.IssuerParameters.Name = to.Ptr("Unknown")
		_, err = client.CreateCertificate(ctx, "other", parameters, nil)
		wantError(t, err, http.StatusBadRequest, "BadParameter")
		_, err = client.DeleteCertificate(ctx, "kas", nil)
		must.Do(t, err)
		parameters.CertificatePolicy.IssuerParameters.Name = to.Ptr("Self")
		_, err = client.CreateCertificate(ctx, "kas", parameters, nil)
		wantError(t, err, http.StatusConflict, "Conflict")
		for {
			if _, err = client.RecoverDeletedCertificate(ctx, "kas", nil); err == nil {
				break
			}
			wantError(t, err, http.StatusConflict, "Conflict")
		}
		again, err := client.GetCertificate(ctx, "kas", "", nil)
		if must.Do(t, err); again.ID.Version() != found.ID.Version() {
			t.Errorf("recovered certificate %+v", again.Certificate)
		}
		_, err = client.PurgeDeletedCertificate(ctx, "kas", nil)
		wantError(t, err, http.StatusNotFound, "CertificateNotFound")
	})
}

// TestCertificateVersions checks that the newest version of a certificate does not change until the next version is
// created, and not if the issuer rejects the request.
func TestCertificateVersions(t *testing.T) {
	now := time.Now()
	azure, ctx := start(t, emulator.Options{OperationDelay: time.Hour, CertificateLifetime: 48 * time.Hour, Now: func() time.Time { return now }}), t.Context()
	client := must.Get(azcertificates.NewClient(azure.URL, azure.Tokens, &azcertificates.ClientOptions{
		ClientOptions: azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	status := func(want string) azcertificates.CertificateOperation {
		t.Helper()
		operation, err := client.GetCertificateOperation(ctx, "kas", nil)
		if must.Do(t, err); *operation.Status != want {
			t.Fatalf("the operation is %s, want %s", *operation.Status, want)
		}
		return operation.CertificateOperation
	}
	newest := func() azcertificates.Certificate {
		t.Helper()
		found, err := client.GetCertificate(ctx, "kas", "", nil)
		return must.Get(found, err)(t).Certificate
	}
	create := func() error {
		_, err := client.CreateCertificate(ctx, "kas", azcertificates.CreateCertificateParameters{CertificatePolicy: &azcertificates.CertificatePolicy{
			IssuerParameters:          &azcertificates.IssuerParameters{Name: to.Ptr("OneCertV2-PublicCA")},
			KeyProperties:             &azcertificates.KeyProperties{KeyType: to.Ptr(azcertificates.KeyTypeEC)},
			X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=api.c." + zone)},
		}}, nil)
		return err
	}
	must.Do(t, create())
	status("inProgress")
	if found := newest(); len(found.CER) > 0 || *found.Attributes.Enabled {
		t.Errorf("before the first version: %+v", found)
	}
	wantError(t, create(), http.StatusConflict, "Conflict")
	now = now.Add(time.Hour)
	status("completed")
	first := newest()
	if validity := first.Attributes.Expires.Sub(*first.Attributes.NotBefore); validity != 48*time.Hour {
		t.Errorf("the certificate is valid for %v, want 48h", validity)
	}

	_, err := azure.Faults().Add(faults.Rule{Services: []string{emulator.ServiceIssuer}, Path: "kas", Status: http.StatusForbidden, Code: "QuotaExceeded", Count: 1})
	must.Do(t, err)
	must.Do(t, create())
	now = now.Add(time.Hour)
	if failed := status("failed"); failed.Error == nil || failed.Error.Code != "RequestRejected" {
		t.Errorf("the error of the operation is %+v", failed.Error)
	}
	if found := newest(); found.ID.Version() != first.ID.Version() {
		t.Error("a failed operation changed the certificate")
	}
	_, err = client.DeleteCertificateOperation(ctx, "kas", nil)
	must.Do(t, err)
	_, err = client.GetCertificateOperation(ctx, "kas", nil)
	wantError(t, err, http.StatusNotFound, "PendingCertificateNotFound")

	must.Do(t, create())
	status("inProgress")
	if found := newest(); found.ID.Version() != first.ID.Version() || !*found.Attributes.Enabled {
		t.Error("the newest version changed while the next one is pending")
	}
	now = now.Add(time.Hour)
	status("completed")
	second := newest()
	if second.ID.Version() == first.ID.Version() || !second.Attributes.Expires.After(*first.Attributes.Expires) {
		t.Errorf("the second version is %v, valid until %v", second.ID, second.Attributes.Expires)
	}
	if old, err := client.GetCertificate(ctx, "kas", first.ID.Version(), nil); err != nil || !bytes.Equal(old.CER, first.CER) {
		t.Errorf("reading the first version: %v", err)
	}
}

// TestSecrets stores versions of a secret, reads, deletes and recovers it.
func TestSecrets(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	vault := must.Get(azsecrets.NewClient(azure.URL, azure.Tokens, &azsecrets.ClientOptions{ClientOptions: azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	set := func(value string, attributes *azsecrets.SecretAttributes) (azsecrets.SetSecretResponse, error) {
		return vault.SetSecret(ctx, "Name", azsecrets.SetSecretParameters{Value: to.Ptr(value), Tags: map[string]*string{"of": to.Ptr(value)}, SecretAttributes: attributes}, nil)
	}
	ends := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	first := must.Get(set("one", &azsecrets.SecretAttributes{NotBefore: to.Ptr(ends.AddDate(-1, 0, 0)), Expires: to.Ptr(ends)}))(t)
	must.Get(set("two", nil))(t)
	for version, want := range map[string]string{"": "two", first.ID.Version(): "one"} {
		if got := must.Get(vault.GetSecret(ctx, "name", version, nil))(t); *got.Value != want || *got.Tags["of"] != want || (version != "") != (got.Attributes.Expires != nil && got.Attributes.Expires.Equal(ends)) {
			t.Errorf("version %q: %q with %v until %v, want %q", version, *got.Value, got.Tags, got.Attributes.Expires, want)
		}
	}
	list := func() (secrets, versions int) {
		for pager := vault.NewListSecretPropertiesPager(nil); pager.More(); {
			secrets += len(must.Get(pager.NextPage(ctx))(t).Value)
		}
		for pager := vault.NewListSecretPropertiesVersionsPager("name", nil); pager.More(); {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return secrets, 0
			}
			versions += len(page.Value)
		}
		return secrets, versions
	}
	if secrets, versions := list(); secrets != 1 || versions != 2 {
		t.Errorf("%d secrets with %d versions, want one with two", secrets, versions)
	}
	_, err := set("three", &azsecrets.SecretAttributes{NotBefore: to.Ptr(ends), Expires: to.Ptr(ends)})
	wantError(t, err, 400, "BadParameter")
	_, err = set(strings.Repeat("x", 26<<10), nil)
	wantError(t, err, 400, "BadParameter")
	disabled := must.Get(set("four", &azsecrets.SecretAttributes{Enabled: to.Ptr(false)}))(t)
	_, err = vault.GetSecret(ctx, "name", disabled.ID.Version(), nil)
	wantError(t, err, 403, "Forbidden")

	must.Get(vault.DeleteSecret(ctx, "name", nil))(t)
	if secrets, versions := list(); secrets != 0 || versions != 0 {
		t.Errorf("a deleted secret is listed: %d, %d versions", secrets, versions)
	}
	_, err = vault.GetSecret(ctx, "name", "", nil)
	wantError(t, err, 404, "SecretNotFound")
	_, err = set("five", nil)
	wantError(t, err, 409, "Conflict")
	_, err = vault.PurgeDeletedSecret(ctx, "name", nil)
	wantError(t, err, 403, "Forbidden")
	must.Get(vault.RecoverDeletedSecret(ctx, "name", nil))(t)
	if got := must.Get(vault.GetSecret(ctx, "name", first.ID.Version(), nil))(t); *got.Value != "one" {
		t.Errorf("after the recovery the first version is %q", *got.Value)
	}
}

func TestBlobs(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	client := must.Get(azblob.NewClient(azure.URL+"/oidc", azure.Tokens, &azblob.ClientOptions{ClientOptions: azure.Options().ClientOptions}))(t)
	_, err := client.UploadBuffer(ctx, "issuers", "c/.well-known/openid-configuration", []byte(`{"issuer":"x"}`), &azblob.UploadBufferOptions{
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")}})
	must.Do(t, err)
	response, err := azure.HTTP().Get(azure.URL + "/oidc/issuers/c/.well-known/openid-configuration")
	must.Do(t, err)
	defer response.Body.Close()
	if content, err := io.ReadAll(response.Body); err != nil || string(content) != `{"issuer":"x"}` || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a public read returned %q, %v, %v", content, response.Header, err)
	}
	var names []string
	for pager := client.NewListBlobsFlatPager("issuers", &azblob.ListBlobsFlatOptions{Prefix: to.Ptr("c/")}); pager.More(); {
		page, err := pager.NextPage(ctx)
		for _, b := range must.Get(page, err)(t).Segment.BlobItems {
			names = append(names, *b.Name)
		}
	}
	if strings.Join(names, ",") != "c/.well-known/openid-configuration" {
		t.Errorf("listed %v", names)
	}
	_, err = client.DeleteBlob(ctx, "issuers", "c/.well-known/openid-configuration", nil)
	must.Do(t, err)
	_, err = client.DeleteBlob(ctx, "issuers", "c/.well-known/openid-configuration", nil)
	wantError(t, err, http.StatusNotFound, "BlobNotFound")
	_, err = client.UploadBuffer(ctx, "nothing", "x", nil, nil)
	wantError(t, err, http.StatusNotFound, "ContainerNotFound")
}
