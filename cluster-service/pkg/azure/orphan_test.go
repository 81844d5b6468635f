package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

func TestOrphanOf(t *testing.T) {
	const (
		uid, other  = "6d5f0a3e-0000-4000-8000-000000000001", "7d5f0a3e-0000-4000-8000-000000000001"
		id, otherID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c", "/subscriptions/s/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/d"
	)
	gone := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	group := func(managedBy, tag string) *armresources.ResourceGroup {
		g := &armresources.ResourceGroup{ID: to.Ptr("/subscriptions/s/resourceGroups/managed"), Location: to.Ptr("westus3")}
		if managedBy != "" {
			g.ManagedBy = to.Ptr(managedBy)
		}
		if tag != "" {
			g.Tags = map[string]*string{ownerTag: to.Ptr(tag)}
		}
		return g
	}
	records := func(kind, name, tag string) *armdns.RecordSet {
		return &armdns.RecordSet{ID: to.Ptr("/zone/" + kind + "/" + name), Name: to.Ptr(name), Type: to.Ptr("Microsoft.Network/dnszones/" + kind),
			Properties: &armdns.RecordSetProperties{Metadata: map[string]*string{ownerTag: to.Ptr(tag)}}}
	}
	credential := func(issuer, name string) *armmsi.FederatedIdentityCredential {
		return &armmsi.FederatedIdentityCredential{ID: to.Ptr("/identity/" + name), Name: to.Ptr(name), Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(issuer)}}
	}
	elsewhere := group(id, uid)
	elsewhere.Location = to.Ptr("eastus")
	cluster, tombstone := store.ClusterIncarnation{UID: uid, ResourceID: id}, store.ClusterIncarnation{UID: uid, ResourceID: id, GoneTime: gone}
	successor := store.ClusterIncarnation{UID: other, ResourceID: id}
	for name, tc := range map[string]struct {
		group  *armresources.ResourceGroup
		record *armdns.RecordSet
		blob   string
		// credential is a federated credential in a region whose issuers are below https://issuers.
		credential *armmsi.FederatedIdentityCredential
		kind       fleet.AzureKind
		known      []store.ClusterIncarnation
		orphan     bool
		// evidence and proof are parts of those of the orphan.
		evidence, proof string
	}{
		"its cluster exists":                      {group: group(id, uid), known: []store.ClusterIncarnation{cluster}},
		"other case of the IDs":                   {group: group(strings.ToUpper(id), strings.ToUpper(uid)), known: []store.ClusterIncarnation{cluster}},
		"without a tag":                           {group: group(id, ""), known: []store.ClusterIncarnation{cluster}},
		"with the tag and another owner":          {group: group(otherID, uid), known: []store.ClusterIncarnation{cluster}},
		"of another region":                       {group: elsewhere},
		"of a customer":                           {group: group("", "")},
		"managed by another service":              {group: group("/subscriptions/s/resourceGroups/g/providers/Microsoft.Databricks/workspaces/w", "")},
		"a tag that is no UID":                    {group: group("", "mine")},
		"a record of a cluster":                   {record: records("A", "api.p", uid), known: []store.ClusterIncarnation{cluster}},
		"a record of the region":                  {record: records("A", "admin", "")},
		"a record of a deleted cluster":           {record: records("A", "api.p", uid), kind: fleet.AzureAPIRecord, known: []store.ClusterIncarnation{tombstone}, orphan: true, evidence: "metadata", proof: "was deleted"},
		"a delegation of a deleted cluster":       {record: records("NS", "aro.p", uid), kind: fleet.AzureDNSDelegation, known: []store.ClusterIncarnation{tombstone}, orphan: true, proof: "was deleted"},
		"a record of a lost cluster":              {record: records("CNAME", "oauth.p", uid), kind: fleet.AzureServiceRecords, orphan: true, evidence: "metadata"},
		"a document of a cluster":                 {blob: "cid/openid/v1/jwks", known: []store.ClusterIncarnation{{UID: uid, ID: "cid"}}},
		"another document":                        {blob: "index.html"},
		"a document of a deleted cluster":         {blob: "cid/.well-known/openid-configuration", kind: fleet.AzureDocuments, known: []store.ClusterIncarnation{{UID: uid, ID: "cid", GoneTime: gone}}, orphan: true, evidence: "cid", proof: "was deleted"},
		"a document of a lost cluster":            {blob: "cid/openid/v1/jwks", orphan: true, evidence: "cid"},
		"a credential of a cluster":               {credential: credential("https://issuers/cid", "cid-registry"), known: []store.ClusterIncarnation{{UID: uid, ID: "cid"}}},
		"a credential of another region":          {credential: credential("https://elsewhere/cid", "cid-registry")},
		"a credential with another name":          {credential: credential("https://issuers/cid", "cid-mine")},
		"a credential with another cluster ID":    {credential: credential("https://issuers/cid", "other-registry")},
		"a credential of a deleted cluster":       {credential: credential("https://issuers/cid", "cid-disk-node"), kind: fleet.AzureFederation, known: []store.ClusterIncarnation{{UID: uid, ID: "cid", GoneTime: gone}}, orphan: true, evidence: "cid", proof: "was deleted"},
		"a credential of a lost cluster":          {credential: credential("https://issuers/cid", "cid-registry"), orphan: true, evidence: "cid"},
		"its cluster is deleted":                  {group: group(id, uid), known: []store.ClusterIncarnation{tombstone}, orphan: true, evidence: "the UID of a cluster", proof: uid + " was deleted at 2026-11-21T03:00:00Z"},
		"of the predecessor of a cluster":         {group: group(id, uid), known: []store.ClusterIncarnation{successor, tombstone}, orphan: true, evidence: "the existing cluster " + other, proof: "was deleted"},
		"of an unknown predecessor":               {group: group(id, uid), known: []store.ClusterIncarnation{successor}, orphan: true, evidence: "the existing cluster " + other},
		"of a lost cluster":                       {group: group(id, uid), orphan: true, evidence: "the UID of a cluster"},
		"of a lost cluster, without a tag":        {group: group(id, ""), orphan: true, evidence: "is missing"},
		"with a copied tag of a deleted cluster":  {group: group("", uid), known: []store.ClusterIncarnation{tombstone}, orphan: true, evidence: "managedBy names no cluster"},
		"with a changed tag of a deleted cluster": {group: group(otherID, uid), known: []store.ClusterIncarnation{tombstone}, orphan: true, evidence: "the UID of a cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			var o store.AzureOrphan
			var c claim
			var orphan bool
			switch {
			case tc.record != nil:
				c, orphan = claimOfRecords(tc.record)
			case tc.blob != "":
				c, orphan = claimOfDocument("https://account/container", tc.blob)
			case tc.credential != nil:
				c, orphan = claimOfCredential("https://issuers", tc.credential)
			default:
				c, orphan = claimOf("westus3", tc.group)
			}
			if orphan {
				o, orphan = orphanOf(c, tc.known)
			}
			if orphan != tc.orphan || !strings.Contains(o.Evidence, tc.evidence) || (o.Proof != "") != (tc.proof != "") || orphan && o.ClusterUID != c.uid || tc.kind != "" && o.Kind != string(tc.kind) || !strings.Contains(o.Proof, tc.proof) {
				t.Errorf("orphan: %v, %+v", orphan, o)
			}
		})
	}
}
