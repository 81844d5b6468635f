package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// TestAzureOrphans creates managed resource groups, record sets, federated credentials, a certificate and a document of a deleted or a lost cluster again, among more groups than a
// page of Azure has. Cluster Service reports them after the second search. It reports neither the resources of a cluster nor those of others. Engineers
// delete those with a proof.
func TestAzureOrphans(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{Seed: serviceRights()})
	race := &deletionRace{next: r.azureWire}
	r.azureWire = race
	r.play()
	service := r.start(nil)
	ctx := t.Context()
	deleted, living := r.azureRequest("deleted"), r.azureRequest("living")
	for _, request := range []*csv1.ApplyClusterRequest{deleted, living} {
		service.applyUntilReady(t, request)
	}
	tombstone := service.removed(t, deleted.Uid)

	groups, err := armresources.NewResourceGroupsClient(customerSubscription, r.azure.Tokens, r.azure.Options())
	if err != nil {
		t.Fatal(err)
	}
	create := func(name, location, managedBy, uid string) string {
		t.Helper()
		group := armresources.ResourceGroup{Location: to.Ptr(location), Tags: map[string]*string{"hcpmesh-cluster": to.Ptr(uid)}}
		if managedBy != "" {
			group.ManagedBy = to.Ptr(managedBy)
		}
		created := must.Get(groups.CreateOrUpdate(ctx, name, group, nil))(t)
		return *created.ID
	}
	for i := range 100 {
		create(fmt.Sprintf("a-group-of-the-customer-%d", i), "westus3", "", "")
	}
	create("of-another-region", "eastus", deleted.ResourceId, deleted.Uid)
	records := must.Get(armdns.NewRecordSetsClient(emulatortest.Subscription, r.azure.Tokens, r.azure.Options()))(t)
	record := func(name, uid string) string {
		t.Helper()
		created := must.Get(records.CreateOrUpdate(ctx, "region", "0ulz.westus3.aroapp-hcp.io", name, armdns.RecordTypeA, armdns.RecordSet{Properties: &armdns.RecordSetProperties{
			TTL: to.Ptr[int64](300), Metadata: map[string]*string{"hcpmesh-cluster": to.Ptr(uid)}, ARecords: []*armdns.ARecord{{IPv4Address: to.Ptr("192.0.2.1")}}}}, nil))(t)
		return *created.ID
	}
	record("admin", "")
	leftRecord, lostRecord := record("api.left", deleted.Uid), record("oauth.lost", uuid.NewString())
	vault := must.Get(azcertificates.NewClient(r.azure.URL, r.azure.Tokens, &azcertificates.ClientOptions{ClientOptions: r.azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	leftCertificate := r.azure.URL + "/certificates/kas-left"
	for name, tags := range map[string]map[string]*string{"kas-left": {"hcpmesh-cluster": to.Ptr(deleted.Uid)}, "frontend": nil} {
		must.Get(vault.CreateCertificate(ctx, name, azcertificates.CreateCertificateParameters{Tags: tags, CertificatePolicy: &azcertificates.CertificatePolicy{
			IssuerParameters: &azcertificates.IssuerParameters{Name: to.Ptr("OneCertV2-PublicCA")}, KeyProperties: &azcertificates.KeyProperties{KeyType: to.Ptr(azcertificates.KeyTypeEC), Curve: to.Ptr(azcertificates.CurveNameP256)},
			X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=" + name + ".example.com"), ValidityInMonths: to.Ptr[int32](12)}}}, nil))(t)
	}
	documents := must.Get(azblob.NewClient(r.azure.URL+"/oidc", r.azure.Tokens, &azblob.ClientOptions{ClientOptions: r.azure.Options().ClientOptions}))(t)
	leftDocument := tombstone.GetStatus().GetClusterId() + "/openid/v1/jwks"
	for _, name := range []string{leftDocument, "index.html"} {
		must.Get(documents.UploadBuffer(ctx, "issuers", name, []byte("{}"), nil))(t)
	}
	credentials := must.Get(armmsi.NewFederatedIdentityCredentialsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	credential := func(clusterID string) string {
		t.Helper()
		created := must.Get(credentials.CreateOrUpdate(ctx, "cust-rg", "dp-image-registry", clusterID+"-registry", armmsi.FederatedIdentityCredential{Properties: &armmsi.FederatedIdentityCredentialProperties{
			Issuer: to.Ptr("https://oidc.example.com/" + clusterID), Subject: to.Ptr("system:serviceaccount:openshift-image-registry:registry"), Audiences: []*string{to.Ptr("openshift")}}}, nil))(t)
		return *created.ID
	}
	leftCredential, lostCredential := credential(tombstone.GetStatus().GetClusterId()), credential(fleet.ClusterID(uuid.NewString()))
	left, kept := create("managed-deleted", "westus3", deleted.ResourceId, deleted.Uid), create("managed-kept", "westus3", deleted.ResourceId, deleted.Uid)
	lost := create("managed-lost", "westus3", resourceID("lost"), uuid.NewString())

	// await advances the clock to the next search, and waits until the orphans with and without a proof are listed.
	await := func(proven, unproven []string) {
		t.Helper()
		r.clock.advance(10 * time.Hour)
		eventually.Soon(t, "the orphans are listed", func() error {
			response, err := service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{})
			if err != nil {
				return err
			}
			var gotProven, gotUnproven []string
			for _, o := range response.GetOrphans() {
				if o.GetProof() != "" {
					gotProven = append(gotProven, o.GetAzureId())
				} else {
					gotUnproven = append(gotUnproven, o.GetAzureId())
				}
			}
			for _, ids := range [][]string{proven, unproven, gotProven, gotUnproven} {
				slices.Sort(ids)
			}
			count := 0
			for _, kind := range fleet.AzureKinds() {
				found, _ := service.metric("cluster_service_azure_orphans", string(kind)) // a kind without orphans may have no metric
				count += int(found)
			}
			if !slices.Equal(gotProven, proven) || !slices.Equal(gotUnproven, unproven) || count != len(proven)+len(unproven) {
				return fmt.Errorf("counted %d: %v", count, response.GetOrphans())
			}
			return nil
		})
	}
	r.clock.advance(10 * time.Hour)
	database := must.Get(store.Open(store.Options{URL: r.url, Now: r.clock.now}))(t)
	defer database.Close()
	eventually.Soon(t, "the first search has ended", func() error {
		if found, err := database.ListAzureOrphans(ctx, "", 0, 10); err != nil || len(found) != 9 {
			return fmt.Errorf("found %+v, %w", found, err)
		}
		return nil
	})
	if list, err := service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{}); err != nil || len(list.GetOrphans()) > 0 {
		t.Errorf("after one search: %v, %v", list, err)
	}
	await([]string{left, kept, leftRecord, leftCertificate, r.azure.URL + "/oidc/issuers/" + leftDocument, leftCredential}, []string{lost, lostRecord, lostCredential})
	list := must.Get(service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{}))(t)
	uids := map[string]string{}
	for _, o := range list.GetOrphans() {
		uids[o.GetAzureId()] = o.GetUid()
		if !o.GetLastTime().AsTime().After(o.GetFirstTime().AsTime().Add(time.Hour)) {
			t.Errorf("listed %v", o)
		}
	}

	// remove requests a deletion as the backend does, which repeats the ID of the operation.
	remove := func(operation, uid string) error {
		_, err := service.DeleteAzureOrphan(metadata.AppendToOutgoingContext(ctx, clusterservice.CallIDKey, operation),
			&csv1.DeleteAzureOrphanRequest{Uid: uid, Actor: alice("its cluster is deleted")})
		return err
	}
	unproven := func(what, azureID string) {
		t.Helper()
		t.Log(what)
		requireRefused(t, remove(uuid.NewString(), uids[azureID]), codes.FailedPrecondition, azure.ReasonOrphanUnproven)
	}
	requireRefused(t, remove(uuid.NewString(), uuid.NewString()), codes.NotFound, "AZURE_ORPHAN_UNKNOWN")
	unproven("no tombstone", lost)
	unproven("no tombstone of the owner of a record", lostRecord)
	unproven("no tombstone of the issuer of a credential", lostCredential)
	for what, tag := range map[string]string{"the group of an existing cluster": living.Uid, "the group of an unknown cluster": uuid.NewString(), "the group has no tag": ""} {
		create("managed-deleted", "westus3", deleted.ResourceId, tag)
		unproven(what, left)
	}
	create("managed-deleted", "westus3", deleted.ResourceId, deleted.Uid)
	own := func() { record("api.left", living.Uid) }
	race.before.Store(&own)
	requireRefused(t, remove("changed", uids[leftRecord]), codes.Unavailable, "")
	unproven("the record has got an owner", leftRecord)
	record("api.left", deleted.Uid)
	for _, tc := range []struct {
		rule   faults.Rule
		id     string
		code   codes.Code
		reason string
	}{
		{faults.Rule{Path: "/managed-deleted", Status: 503, Code: "ServiceUnavailable"}, left, codes.Unavailable, ""},
		{faults.Rule{Path: "/managed-deleted", Status: 409, Code: "AnotherOperationInProgress"}, left, codes.Unavailable, ""},
		{faults.Rule{Path: "/managed-deleted", Status: 409, Code: "ScopeLocked"}, left, codes.FailedPrecondition, azure.ReasonOrphanRefused},
		{faults.Rule{Path: "/certificates/kas-left", DropResponse: true}, leftCertificate, codes.Unavailable, ""},
	} {
		tc.rule.Methods, tc.rule.Count = []string{"DELETE"}, 1
		must.Get(r.azure.Faults().Add(tc.rule))(t)
		requireRefused(t, remove("of "+uids[tc.id], uids[tc.id]), tc.code, tc.reason)
	}
	for _, id := range []string{left, leftRecord, leftCertificate, r.azure.URL + "/oidc/issuers/" + leftDocument, leftCredential} {
		if err := remove("of "+uids[id], uids[id]); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	record("api.left", deleted.Uid)
	requireRefused(t, remove("of "+uids[leftRecord], uids[leftRecord]), codes.Aborted, clusterservice.ReasonCallDone)
	if _, err := records.Get(ctx, "region", "0ulz.westus3.aroapp-hcp.io", "api.left", armdns.RecordTypeA, nil); err != nil {
		t.Errorf("a repeated request has an effect: %v", err)
	}
	if list, err = service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{}); err != nil || len(list.GetOrphans()) != 4 {
		t.Errorf("after the deletions: %v, %v", list, err)
	}
	successor := r.azureRequest("deleted")
	successor.Uid = uuid.NewString()
	must.Get(service.ApplyCluster(ctx, successor))(t)
	unproven("a cluster of the resource ID exists", kept)

	deletion, err := groups.BeginDelete(ctx, "managed-lost", nil)
	if err == nil {
		_, err = deletion.PollUntilDone(ctx, nil)
	}
	if err == nil {
		_, err = records.Delete(ctx, "region", "0ulz.westus3.aroapp-hcp.io", "api.left", armdns.RecordTypeA, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	await([]string{kept}, []string{lostRecord, lostCredential})
}

// deletionRace calls a function once, before the next deletion of a record set.
type deletionRace struct {
	next   policy.Transporter
	before atomic.Pointer[func()]
}

func (d *deletionRace) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/A/api.left") {
		if before := d.before.Swap(nil); before != nil {
			(*before)()
		}
	}
	return d.next.Do(r)
}
