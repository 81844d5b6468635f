package azure

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
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
	// uid is the UID in the tag of the resource; empty if it has none. resourceID is what managedBy names; empty if that is no cluster.
	uid, resourceID string
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

// orphanOf decides whether a claimed resource belongs to no cluster. known are the clusters and tombstones with the UID of the claim, and
// the clusters with its resource ID. The tag decides if there is one, because clusters that follow each other can have one resource ID.
// The cluster is proven to be deleted only if its tombstone has both: customers can change the tag, and managedBy does not tell clusters
// of one resource ID apart.
func orphanOf(c claim, known []store.ClusterIncarnation) (store.AzureOrphan, bool) {
	o := store.AzureOrphan{Kind: string(c.kind), AzureID: c.id, ClusterUID: c.uid, ClusterResourceID: c.resourceID}
	for _, k := range known {
		named, managed := k.UID == c.uid, strings.EqualFold(k.ResourceID, c.resourceID)
		switch {
		case k.GoneTime.IsZero() && (named || managed && c.uid == ""):
			return store.AzureOrphan{}, false
		case k.GoneTime.IsZero() && managed:
			o.Evidence = fmt.Sprintf("managedBy is the resource ID of the existing cluster %s, but the tag %s is another UID.", k.UID, ownerTag)
		case !k.GoneTime.IsZero() && named && managed:
			o.Proof = fmt.Sprintf("Cluster %s was deleted at %s.", k.UID, k.GoneTime.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case o.Evidence != "":
	case c.uid == "":
		o.Evidence = fmt.Sprintf("managedBy is the resource ID of a cluster. The tag %s is missing.", ownerTag)
	case c.resourceID == "":
		o.Evidence = fmt.Sprintf("The tag %s is the UID of a cluster. managedBy names no cluster.", ownerTag)
	default:
		o.Evidence = fmt.Sprintf("managedBy is the resource ID, and the tag %s the UID of a cluster.", ownerTag)
	}
	return o, true
}
