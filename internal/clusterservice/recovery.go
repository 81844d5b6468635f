package clusterservice

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ReasonClusterUnplaced is the answer of a cluster that has nothing yet that could be lost.
const ReasonClusterUnplaced = "CLUSTER_UNPLACED"

// RecoveryFingerprint says of which state of a cluster what is kept for its recovery is; empty while it has nothing.
func RecoveryFingerprint(c *clusterservicev1.Cluster) string {
	s := c.GetStatus()
	if s.GetProvisionShard() == "" || c.GetDeleteTime() != nil {
		return ""
	}
	of := s.GetProvisionShard() + " " + strings.Join(s.GetActiveVersions(), " ")
	if slices.ContainsFunc(s.GetProgress(), func(p *clusterservicev1.LayerProgress) bool {
		return p.GetLayer() == "azure" && p.GetState() == "Ready"
	}) {
		of += " azure" // what was decided there is known
	}
	return of
}

// Recovery reads what has to be kept of a cluster; nil when there is nothing, and without anything from a service of a release that
// knows of none.
func (c *Client) Recovery(ctx context.Context, uid, of string) (*database.FleetRecovery, error) {
	r, err := c.rpc.GetClusterRecovery(ctx, &clusterservicev1.GetClusterRecoveryRequest{Uid: uid})
	if status.Code(err) == codes.Unimplemented {
		// It says nothing, and is not asked again before the cluster has changed.
		return &database.FleetRecovery{Fingerprint: of}, nil
	}
	if err != nil {
		failure := apierror.As(apierror.FromGRPC(err))
		if failure.Kind == apierror.NotFound || failure.Reason == ReasonClusterUnplaced || failure.Reason == ReasonClusterDeleting {
			return nil, nil
		}
		return nil, failure
	}
	return &database.FleetRecovery{Fingerprint: of, ProvisionShard: r.GetProvisionShard(), ReleaseVersion: r.GetReleaseVersion(), ReleaseImage: r.GetReleaseImage(),
		BaseDomainPrefix: r.GetBaseDomainPrefix(), CreateTime: when(r.GetCreateTime()), SigningKey: r.GetSigningKey(),
		SubnetAssociated: r.GetSubnetAssociated()}, nil
}

func recoveryRequest(r *database.FleetRecovery) *clusterservicev1.ClusterRecovery {
	if r == nil || r.ProvisionShard == "" {
		return nil
	}
	return &clusterservicev1.ClusterRecovery{ProvisionShard: r.ProvisionShard, ReleaseVersion: r.ReleaseVersion, ReleaseImage: r.ReleaseImage,
		BaseDomainPrefix: r.BaseDomainPrefix, SigningKey: r.SigningKey, CreateTime: timestamppb.New(r.CreateTime),
		SubnetAssociated: r.SubnetAssociated}
}
