package azure

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// clusterType is the resource type of the clusters that managedBy of a managed resource group names.
const clusterType = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"

// claim is a resource in Azure with the cluster to which it claims to belong.
type claim struct {
	kind fleet.AzureKind
	id   string
	// uid is the UID in the tag of the resource; empty without a tag. resourceID is the resource ID in managedBy; empty unless it is of a cluster.
	uid, resourceID string
	// clusterID is the cluster ID in the name of a document or a federated credential; empty for other resources.
	clusterID string
	// own reports that the tag or the name is enough for a proof: only the service writes it, or nobody can use the resource without the cluster.
	own bool
}

// claimOfRecords returns the claim of a record set in the region's zone. ok is false for one that the service did not write for a cluster.
func claimOfRecords(r *armdns.RecordSet) (c claim, ok bool) {
	if r.ID == nil || r.Name == nil || r.Type == nil || r.Properties == nil {
		return claim{}, false
	}
	uid, err := uuid.Parse(owner(r.Properties.Metadata))
	if err != nil {
		return claim{}, false
	}
	c = claim{kind: fleet.AzureServiceRecords, id: *r.ID, uid: uid.String(), own: true}
	switch {
	case strings.HasSuffix(strings.ToUpper(*r.Type), "/NS"):
		c.kind = fleet.AzureDNSDelegation
	case strings.HasPrefix(*r.Name, "api."):
		c.kind = fleet.AzureAPIRecord
	}
	return c, true
}

// claimInVault returns the claim of a certificate or a secret in a vault. ok is false for one that the service did not store for a cluster.
func claimInVault[ID ~string](kind fleet.AzureKind, id *ID, tags map[string]*string) (c claim, ok bool) {
	uid, err := uuid.Parse(owner(tags))
	if id == nil || err != nil {
		return claim{}, false
	}
	return claim{kind: kind, id: string(*id), uid: uid.String(), own: true}, true
}

// claimOfDocument returns the claim of a blob, by its URL and its name. ok is false for one that is not a document of a cluster.
func claimOfDocument(url, name string) (c claim, ok bool) {
	for _, document := range []string{discoveryDocument, keysDocument} {
		if id, found := strings.CutSuffix(name, document); found && id != "" {
			return claim{kind: fleet.AzureDocuments, id: url + "/" + name, clusterID: strings.ToLower(id), own: true}, true
		}
	}
	return claim{}, false
}

// claimOfCredential returns the claim of a federated credential in a region, whose issuers have a base URL. ok is false for one that does not have a
// name that the service gives and the issuer of the cluster in it. No token of this issuer is accepted after the deletion of the cluster, because its
// documents are deleted: nobody can use the credential, whoever created it.
func claimOfCredential(issuers string, f *armmsi.FederatedIdentityCredential) (c claim, ok bool) {
	if f.ID == nil || f.Name == nil || f.Properties == nil || f.Properties.Issuer == nil {
		return claim{}, false
	}
	id, ours := strings.CutPrefix(*f.Properties.Issuer, issuers+"/")
	short, named := strings.CutPrefix(*f.Name, id+"-")
	for _, s := range subjects {
		if ours && named && id != "" && short == s.short {
			return claim{kind: fleet.AzureFederation, id: *f.ID, clusterID: strings.ToLower(id), own: true}, true
		}
	}
	return claim{}, false
}

// claimOf returns the claim of a resource group in a region. ok is false for a group of another region and for one that does not claim to
// belong to a cluster.
func claimOf(location string, g *armresources.ResourceGroup) (c claim, ok bool) {
	if g.ID == nil || g.Location == nil || !strings.EqualFold(*g.Location, location) {
		return claim{}, false
	}
	c = claim{kind: fleet.AzureResourceGroup, id: *g.ID}
	if uid, err := uuid.Parse(owner(g.Tags)); err == nil {
		c.uid = uid.String()
	}
	if g.ManagedBy != nil {
		if id, err := arm.ParseResourceID(*g.ManagedBy); err == nil && strings.EqualFold(id.ResourceType.String(), clusterType) {
			c.resourceID = *g.ManagedBy
		}
	}
	return c, c.uid != "" || c.resourceID != ""
}

// orphanOf decides whether a claimed resource belongs to no cluster. known are the clusters and tombstones with the UID or the cluster ID of
// the claim, and the clusters with its resource ID. The tag decides if there is one, because clusters that follow each other can have one resource ID.
// The tombstone with the UID or the cluster ID proves that the cluster is deleted if that is enough for the kind. For a resource group,
// the tombstone must also have the resource ID: customers can change the tag, and managedBy does not tell clusters of one resource ID apart.
func orphanOf(c claim, known []store.ClusterIncarnation) (store.AzureOrphan, bool) {
	o := store.AzureOrphan{Kind: string(c.kind), AzureID: c.id, ClusterUID: c.uid, ClusterResourceID: c.resourceID}
	for _, k := range known {
		named, managed := k.UID == c.uid || c.clusterID != "" && k.ID == c.clusterID, strings.EqualFold(k.ResourceID, c.resourceID)
		switch {
		case k.GoneTime.IsZero() && (named || managed && c.uid == ""):
			return store.AzureOrphan{}, false
		case k.GoneTime.IsZero() && managed:
			o.Evidence = fmt.Sprintf("managedBy is the resource ID of the existing cluster %s, but the tag %s is another UID.", k.UID, ownerTag)
		case !k.GoneTime.IsZero() && named && (managed || c.own):
			o.Proof = fmt.Sprintf("Cluster %s was deleted at %s.", k.UID, k.GoneTime.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case o.Evidence != "":
	case c.clusterID != "":
		o.Evidence = "The name of the resource begins with the cluster ID " + c.clusterID + "."
	case c.own:
		o.Evidence = fmt.Sprintf("The tag or metadata %s, which only the service writes, is the UID of a cluster.", ownerTag)
	case c.uid == "":
		o.Evidence = fmt.Sprintf("managedBy is the resource ID of a cluster. The tag %s is missing.", ownerTag)
	case c.resourceID == "":
		o.Evidence = fmt.Sprintf("The tag %s is the UID of a cluster. managedBy names no cluster.", ownerTag)
	default:
		o.Evidence = fmt.Sprintf("managedBy is the resource ID, and the tag %s the UID of a cluster.", ownerTag)
	}
	return o, true
}
