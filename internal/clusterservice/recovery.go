package clusterservice

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ReasonClusterUnplaced is the reason of GetClusterRecovery's error for a cluster that has no recovery data yet.
const ReasonClusterUnplaced = "CLUSTER_UNPLACED"

// RecoveryFingerprint identifies the state of a cluster that its recovery data belongs to: the data has to be read again
// when the fingerprint changes. It is empty while the cluster is not placed, and once it is being deleted.
func RecoveryFingerprint(c *clusterservicev1.Cluster) string {
	s := c.GetStatus()
	if s.GetProvisionShard() == "" || c.GetDeleteTime() != nil {
		return ""
	}
	fingerprint := s.GetProvisionShard() + " " + strings.Join(s.GetActiveVersions(), " ")
	if slices.ContainsFunc(s.GetProgress(), func(p *clusterservicev1.LayerProgress) bool {
		return p.GetLayer() == clusterstatus.LayerAzure && p.GetState() == clusterstatus.StateReady
	}) {
		fingerprint += " azure" // the ownership of Azure resources is decided
	}
	if id := c.GetSealingKeyId(); id != 0 {
		fingerprint += " key " + strconv.FormatUint(uint64(id), 10) // the signing key was sealed again
	}
	return fingerprint
}

// Recovery returns the data with which Cluster Service can restore a cluster that it lost. The result has the fingerprint
// of the report that caused the call. It is nil if the cluster has no recovery data, or is being deleted. A Cluster
// Service of a release without recovery data yields a result with the fingerprint only.
func (c *Client) Recovery(ctx context.Context, uid, fingerprint string) (*database.FleetRecovery, error) {
	r, err := c.rpc.GetClusterRecovery(ctx, &clusterservicev1.GetClusterRecoveryRequest{Uid: uid})
	if status.Code(err) == codes.Unimplemented {
		// The fingerprint prevents another call before the cluster has changed.
		return &database.FleetRecovery{Fingerprint: fingerprint}, nil
	}
	if err != nil {
		failure := apierror.As(apierror.FromGRPC(err))
		if failure.Kind == apierror.NotFound || failure.Reason == ReasonClusterUnplaced || failure.Reason == ReasonClusterDeleting {
			return nil, nil
		}
		return nil, failure
	}
	return &database.FleetRecovery{Fingerprint: fingerprint, ProvisionShard: r.GetProvisionShard(), ReleaseVersion: r.GetReleaseVersion(), ReleaseImage: r.GetReleaseImage(),
		BaseDomainPrefix: r.GetBaseDomainPrefix(), CreateTime: when(r.GetCreateTime()), SigningKey: r.GetSigningKey(),
		SubnetAssociated: r.GetSubnetAssociated()}, nil
}

// recoveryRequest translates stored recovery data; nil if there is none.
func recoveryRequest(r *database.FleetRecovery) *clusterservicev1.ClusterRecovery {
	if r == nil || r.ProvisionShard == "" {
		return nil
	}
	return &clusterservicev1.ClusterRecovery{ProvisionShard: r.ProvisionShard, ReleaseVersion: r.ReleaseVersion, ReleaseImage: r.ReleaseImage,
		BaseDomainPrefix: r.BaseDomainPrefix, SigningKey: r.SigningKey, CreateTime: timestamppb.New(r.CreateTime),
		SubnetAssociated: r.SubnetAssociated}
}
