package service

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// ReasonClusterUnplaced is the reason of the error for a cluster that has nothing to recover yet.
const ReasonClusterUnplaced = "CLUSTER_UNPLACED"

const (
	defaultInventoryPage = 1000
	maxInventoryPage     = 2000
)

// ListInventory returns a page of the resources that are not gone.
func (s *Service) ListInventory(ctx context.Context, r *csv1.ListInventoryRequest) (*csv1.ListInventoryResponse, error) {
	limit := int(r.GetPageSize())
	if limit == 0 {
		limit = defaultInventoryPage
	}
	var c check
	if limit < 0 || limit > maxInventoryPage {
		c.fail("page_size", "Invalid value: %d: must be between 0 and %d", r.GetPageSize(), maxInventoryPage)
	}
	after, err := base64.RawURLEncoding.DecodeString(r.GetPageToken())
	if err != nil {
		c.fail("page_token", "Invalid value: must be a token of an earlier page")
	}
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	entries, revision, err := s.o.Store.Inventory(ctx, string(after), limit)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListInventoryResponse{Revision: revision, Entries: make([]*csv1.InventoryEntry, len(entries))}
	for i, e := range entries {
		response.Entries[i] = &csv1.InventoryEntry{Kind: e.Kind, Uid: e.UID, ClusterUid: e.ClusterUID, ResourceId: e.ResourceID, Generation: e.Generation,
			Deleting: e.Deleting, CreateTime: timestamppb.New(e.CreateTime), ReleaseVersion: e.Release}
	}
	if len(entries) == limit {
		response.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(entries[limit-1].Key()))
	}
	return response, nil
}

// GetClusterRecovery returns the state of a cluster that cannot be derived from a request.
func (s *Service) GetClusterRecovery(ctx context.Context, r *csv1.GetClusterRecoveryRequest) (*csv1.ClusterRecovery, error) {
	if err := validUID("uid", r.GetUid()); err != nil {
		return nil, s.answer(ctx, err)
	}
	aggregate, err := s.o.Store.Read(ctx, r.GetUid())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	c := aggregate.Cluster
	switch {
	case c == nil:
		err = unknown(ReasonClusterUnknown, "cluster", r.GetUid())
	case c.Deleting():
		err = failedPrecondition(ReasonClusterDeleting, "The cluster is being deleted, or is deleted.")
	case c.Shard == "":
		err = failedPrecondition(ReasonClusterUnplaced, "The cluster is not placed yet and has no state to recover.")
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return &csv1.ClusterRecovery{ProvisionShard: c.Shard, ReleaseVersion: c.Release.Version, ReleaseImage: c.Release.Image,
		BaseDomainPrefix: c.Status.GetBaseDomainPrefix(), SigningKey: c.SigningKey, CreateTime: timestamppb.New(c.CreateTime),
		SubnetAssociated: aggregate.Azure.SubnetAssociated()}, nil
}

// recoversRelease reports whether a lost cluster gets its release from recovery data and not by its spec, whose minor version may have
// no accepted release any more.
func recoversRelease(r *csv1.ClusterRecovery) bool {
	return r.GetProvisionShard() != "" && r.GetReleaseImage() != ""
}

// recover restores the state of a cluster that this database lost. It reports whether the cluster has its shard, so that it
// must not be placed.
func (s *Service) recover(ctx context.Context, tx *store.Tx, c *fleet.Cluster, r *csv1.ClusterRecovery) (placed bool, err error) {
	if r.GetProvisionShard() == "" {
		return false, nil
	}
	if r.GetCreateTime().IsValid() && r.GetCreateTime().AsTime().Before(c.CreateTime) {
		c.CreateTime = r.GetCreateTime().AsTime().Truncate(time.Microsecond)
	}
	if prefix := r.GetBaseDomainPrefix(); prefixPattern.MatchString(prefix) {
		c.Status.BaseDomainPrefix = prefix
	}
	if recoversRelease(r) {
		if c.Release, err = s.recoveredRelease(ctx, c, r); err != nil {
			return false, err
		}
	}
	if len(r.GetSigningKey()) > 0 {
		// Only a key that this service sealed for this cluster can be opened, so no other key is accepted.
		if _, err := s.o.Keeper.Open(c.UID, r.GetSigningKey()); err != nil {
			s.o.Log.ErrorContext(ctx, "the signing key of a recovered cluster cannot be decrypted; a new key invalidates its tokens", logkey.ClusterUID, c.UID, logkey.Error, err)
		} else {
			c.SigningKey = r.GetSigningKey()
		}
	}
	if len(s.o.Renderer.Region.AzureKinds) > 0 {
		// The steps in Azure are planned at once, because the cluster may be deleted before its HostedCluster is read back.
		// Each step finds what exists.
		tx.Aggregates[c.UID].Azure = fleet.RecoveredAzure(r.GetSubnetAssociated())
	}
	placed, err = tx.AssignShard(ctx, c, r.GetProvisionShard())
	switch {
	case err != nil:
		return false, err
	case !placed:
		// On another shard it would be a second control plane.
		return false, failedPrecondition(ReasonShardUnknown, "The cluster is on provision shard '"+r.GetProvisionShard()+"', which is not registered: register the shard again.")
	}
	s.o.Log.WarnContext(ctx, "recovered a lost cluster", logkey.ClusterUID, c.UID, logkey.ClusterID, c.ID(), logkey.ResourceID, c.ResourceID,
		logkey.Shard, r.GetProvisionShard(), logkey.Version, c.Release.Version)
	return true, nil
}

// raise sets the release of a cluster to the one that its control plane got after the state in this database. With the
// older release the control plane would be downgraded.
func (s *Service) raise(ctx context.Context, c *fleet.Cluster, r *csv1.ClusterRecovery) (raised bool, err error) {
	is, isErr := release.ParseVersion(c.Release.Version)
	was, wasErr := release.ParseVersion(r.GetReleaseVersion())
	if isErr != nil || wasErr != nil || r.GetReleaseImage() == "" || was.Compare(is) <= 0 {
		return false, nil
	}
	recovered, err := s.recoveredRelease(ctx, c, r)
	if err != nil {
		return false, err
	}
	s.o.Log.WarnContext(ctx, "recovered the lost release of a cluster", logkey.ClusterUID, c.UID, logkey.ResourceID, c.ResourceID,
		logkey.Version, r.GetReleaseVersion(), logkey.Known, c.Release.Version)
	c.Release = recovered
	return true, nil
}

// recoveredRelease returns the release that recovery data names. The data passes databases that others can write, and the image
// runs on a management cluster: version and digest must be those of a release in the catalogue, whose image is used.
func (s *Service) recoveredRelease(ctx context.Context, c *fleet.Cluster, r *csv1.ClusterRecovery) (fleet.Release, error) {
	catalog := s.o.Releases.Catalog()
	known, ok := catalog.Exact(r.GetReleaseVersion())
	refusal, isRefused := catalog.RefusalOf(r.GetReleaseVersion())
	var err error
	switch _, digest, _ := strings.Cut(r.GetReleaseImage(), "@"); {
	case isRefused:
		// The backend retries: a signature can be published, or its store can respond again.
		err = failedPrecondition(ReasonReleaseUnknown, "The release "+quote(r.GetReleaseVersion())+" of the cluster is refused: "+refusal.Reason.Error()+".")
	case !ok:
		// After the loss of the database, the catalogue may be older than the release until the update graph is read.
		err = failedPrecondition(ReasonReleaseUnknown, "The release "+quote(r.GetReleaseVersion())+" of the cluster is not in the release catalogue.")
	case digest != known.Digest:
		err = apierror.InvalidFields([]apierror.Violation{{Field: "recovery.release_image",
			Message: "Invalid value: must have the digest of release " + known.Version.String() + " in the release catalogue, " + known.Digest}})
	default:
		return fleet.Release{Version: known.Version.String(), Image: known.Image}, nil
	}
	s.o.Log.ErrorContext(ctx, "rejected the release of recovery data", logkey.ClusterUID, c.UID, logkey.ResourceID, c.ResourceID, logkey.Error, err)
	return fleet.Release{}, err
}
