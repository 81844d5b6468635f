package server

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// clusterType implements hcpOpenShiftClusters.
type clusterType struct{}

var _ resourceType[database.ClusterDocument, hub.Cluster] = clusterType{}

func (clusterType) name() string { return hub.ClusterResourceType }

func (clusterType) collection(db *database.DB) *database.Collection[database.ClusterDocument] {
	return db.Clusters()
}

func (clusterType) fields(d *database.ClusterDocument) documentFields[hub.Cluster] {
	return documentFields[hub.Cluster]{&d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID, &d.Cluster, d.Status.Identities}
}

func (clusterType) common(cluster *hub.Cluster) *hub.Resource { return &cluster.Resource }

func (clusterType) encode(version *versions.Version, d *database.ClusterDocument) any {
	return version.EncodeCluster(&d.Cluster, d.ProvisioningState, &d.Status)
}

func (clusterType) decode(version *versions.Version, body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster {
	return version.DecodeCluster(body, base, defaults)
}

// identityURLField is the target of a missing header x-ms-identity-url, as in the published service. No api-version has
// the field.
const identityURLField = "properties.managedIdentitiesDataPlaneIdentityURL"

func (clusterType) newDocument(rq *request, _ *database.ClusterDocument) (database.ClusterDocument, []apierror.Violation) {
	document := database.ClusterDocument{TenantID: rq.tenantID, IdentityURL: rq.http.Header.Get(armheader.IdentityURL)}
	var violations []apierror.Violation
	if document.IdentityURL == "" {
		violations = append(violations, apierror.Violation{Field: identityURLField, Message: "Required value"})
	}
	if properties := rq.subscription.Properties; document.TenantID == "" && properties != nil {
		document.TenantID = properties.TenantID
	}
	return document, violations
}

func (clusterType) setDefaults(s *Server, rq *request, cluster *hub.Cluster, uid string, _ *database.ClusterDocument) {
	cluster.Location = s.Rules.Location(cluster.Location)
	if cluster.Properties.DNS.BaseDomainPrefix == "" {
		cluster.Properties.DNS.BaseDomainPrefix = domainPrefix(uid)
	}
	if cluster.Properties.Platform.ManagedResourceGroup == "" {
		cluster.Properties.Platform.ManagedResourceGroup = managedGroup(cluster.Name, uid)
	}
}

// managedGroup returns the default name of a cluster's managed resource group.
func managedGroup(name, uid string) string {
	return "arohcp-" + name[:min(len(name), 45)] + "-" + uid
}

// domainPrefix returns a name of 15 characters for a UID: a letter and 70 bits of its hash, which makes collisions
// practically impossible.
func domainPrefix(uid string) string {
	hash := sha256.Sum256([]byte(uid))
	return "c" + strings.ToLower(base32.StdEncoding.EncodeToString(hash[:]))[:14]
}

func (clusterType) validate(s *Server, rq *request, now *hub.Cluster, stored *database.ClusterDocument, _ *database.ClusterDocument) []apierror.Violation {
	change := validation.ClusterChange{New: now, Subscription: rq.subscription}
	if stored != nil {
		change.Old, change.ActiveVersions = &stored.Cluster, stored.Status.ActiveVersions
	}
	return s.Rules.Cluster(change)
}

// validateAgainstStore rejects a version that the channel group does not have, a managed resource group that contains another
// cluster, because the group is deleted with its cluster, and a subnet of another cluster's node pool. There is no reservation
// for the last two. If two clusters are created at the same moment, one in the group that the other one names, Azure rejects the
// second when it creates its managed resource group.
func (clusterType) validateAgainstStore(s *Server, ctx context.Context, rq *request, cluster *hub.Cluster, uid string) ([]apierror.Violation, error) {
	subscriptionID, own := rq.param(subscriptionParam), rq.param(resourceGroupParam)
	reserved, err := s.Database.Reservations().Find(ctx, database.ReservationKey(subscriptionID, database.ManagedResourceGroupReservation, own))
	if err != nil {
		return nil, err
	}
	if live(reserved) != nil {
		return nil, apierror.New(apierror.Conflict, "The resource group %s is the managed resource group of another cluster.", own)
	}
	exists := func(channelGroup, minor string) bool { return s.mayHaveChannel(ctx, channelGroup, minor) }
	violations := s.Rules.MissingChannelOfNew(cluster, rq.subscription, exists)
	if subnet := cluster.Properties.Platform.SubnetID; subnet != "" {
		used, err := s.Database.SubnetHasNodePool(ctx, subscriptionID, subnet)
		if err != nil {
			return nil, err
		}
		if used {
			violations = append(violations, inUse("properties.platform.subnetId", subnet))
		}
	}
	group := cluster.Properties.Platform.ManagedResourceGroup
	if group == managedGroup(cluster.Name, uid) || strings.EqualFold(group, own) || !validation.IsResourceGroupName(group) {
		return violations, nil
	}
	within, _, err := s.Database.Clusters().List(ctx, subscriptionID, "/subscriptions/"+subscriptionID+"/resourceGroups/"+group+"/providers/", "", 1)
	if err != nil || len(within) == 0 {
		return violations, err
	}
	return append(violations, apierror.Violation{Field: "properties.platform.managedResourceGroup",
		Message: fmt.Sprintf("Invalid value: %s: is the resource group of another cluster", wire.FormatValue(group))}), nil
}

// inUse returns the violation of a name that another cluster uses.
func inUse(field, value string) apierror.Violation {
	return apierror.Violation{Field: field, Message: fmt.Sprintf("Invalid value: %s: is in use by another cluster of the subscription", wire.FormatValue(value))}
}

func (clusterType) pin(s *Server, rq *request, cluster *hub.Cluster) {
	s.Rules.PinVersion(cluster, rq.subscription)
}

// validateChangeAgainstStore rejects a new version that leaves node pools too far behind, or that the channel group does not
// have. A node pool that is created at the same time writes the cluster too, so that the later of the two requests is decided
// again.
func (clusterType) validateChangeAgainstStore(s *Server, ctx context.Context, rq *request, now, stored *hub.Cluster) ([]apierror.Violation, error) {
	if now.Properties.Version.ID == stored.Properties.Version.ID {
		return nil, nil
	}
	pools := map[string][]string{}
	for next, first := "", true; first || next != ""; first = false {
		page, after, err := s.Database.NodePools().List(ctx, rq.param(subscriptionParam), stored.ID+"/nodePools/", next, database.MaxPageSize)
		if err != nil {
			return nil, err
		}
		for _, pool := range page {
			if pool.Value.ProvisioningState != hub.Deleting {
				pools[pool.Value.NodePool.Name] = []string{pool.Value.NodePool.Properties.Version.ID, pool.Value.Status.Version}
			}
		}
		next = after
	}
	exists := func(channelGroup, minor string) bool { return s.hasChannel(ctx, channelGroup, minor) }
	return append(s.Rules.StrandedNodePools(now, pools), s.Rules.MissingChannel(now, exists)...), nil
}

func (clusterType) keepStoredCasing(now, stored *hub.Cluster) {
	now.Location, now.Properties.Platform = stored.Location, stored.Properties.Platform
}

// allot chooses a slot of the quota. The batch that creates the cluster reserves it.
func (clusterType) allot(s *Server, ctx context.Context, rq *request, document *database.ClusterDocument, others int) error {
	subscriptionID := rq.param(subscriptionParam)
	// A quota that an engineer has set may be lower than before. Then all slots must be read.
	if !rq.clusterQuotaSet && others == 0 {
		slot, found, err := s.Database.FreeClusterSlot(ctx, subscriptionID, rq.clusterQuota)
		if err != nil {
			return err
		}
		if found {
			document.QuotaSlot = &slot
			return nil
		}
	}
	used, free, err := s.Database.ClusterUsage(ctx, subscriptionID, rq.clusterQuota)
	if err != nil {
		return err
	}
	if used += others; used >= rq.clusterQuota {
		return apierror.New(apierror.QuotaExceeded, "Operation could not be completed as it results in exceeding approved %s quota. Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: 1, (Minimum) New Limit Required: %d. Delete clusters, or submit a support request to raise the quota.",
			hub.ClusterResourceType, s.Location, rq.clusterQuota, used, used+1)
	}
	slot := free[rand.N(len(free))] // there are as many free slots as clusters may be created
	document.QuotaSlot = &slot
	return nil
}

func (clusterType) reservations(key database.Key, document *database.ClusterDocument) map[database.Key]database.ReservationDocument {
	return database.ClusterReservations(key, document)
}

func (clusterType) reservationConflict(document *database.ClusterDocument, held []database.ReservationDocument) error {
	platform := &document.Cluster.Properties.Platform
	var violations []apierror.Violation
	for _, reservation := range held {
		field, value := "properties.platform.managedResourceGroup", platform.ManagedResourceGroup
		switch reservation.Kind {
		case database.SubnetReservation:
			field, value = "properties.platform.subnetId", platform.SubnetID
		case database.NetworkSecurityGroupReservation:
			field, value = "properties.platform.networkSecurityGroupId", platform.NetworkSecurityGroupID
		}
		violations = append(violations, inUse(field, value))
	}
	validation.Sort(violations)
	return apierror.InvalidFields(violations)
}

// guardDeletion returns nil: a cluster can always be deleted.
func (clusterType) guardDeletion(*Server, context.Context, *request, *database.Item[database.ClusterDocument], *database.Batch) error {
	return nil
}

func (clusterType) dispatch(ctx context.Context, to Dispatcher, document *database.ClusterDocument, deleting bool, correlationID string) {
	to.Cluster(ctx, document, deleting, correlationID)
}
