package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/dump"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

func (s *Server) listClusterActions(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	response, err := s.Fleet.ListClusterActions(ctx, &clusterservicev1.ListClusterActionsRequest{ClusterUid: target.ClusterUID})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.ClusterActionList{Items: adminv1.Messages(response.GetActions())}, nil
}

func (s *Server) listBundles(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	list, err := s.collector.Bundles(ctx, target.ClusterUID)
	if err != nil {
		return nil, err
	}
	s.addDrift(ctx, target.ClusterUID, list.Items)
	return list, nil
}

func (s *Server) listNodePools(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	pools, err := s.nodePools(ctx, target)
	return adminv1.NodePoolList{Items: pools}, err
}

func (s *Server) getNodePool(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.nodePool(ctx, target, rq.http.PathValue("pool"))
}

func (s *Server) nodePools(ctx context.Context, cluster database.AdminTarget) ([]adminv1.NodePool, error) {
	taken := s.collector.Collect(ctx, adminv1.Cluster{UID: cluster.ClusterUID, ResourceID: cluster.ResourceID})
	if taken.ARM == nil {
		return nil, apierror.New(apierror.Unavailable, "%s", taken.Unavailable[adminv1.LayerARM])
	}
	byID := map[string]adminv1.NodePool{}
	for _, p := range taken.ARM.NodePools {
		byID[p.UID] = adminv1.NodePool{ARM: &p}
	}
	if taken.ClusterService != nil {
		for _, p := range taken.ClusterService.NodePools {
			pool := byID[p.Of.GetUid()]
			pool.ClusterService, pool.Verdict = &p, verdict.Of(time.Now(), verdict.NodePool(p.Of)).State
			byID[p.Of.GetUid()] = pool
		}
	}
	pools := []adminv1.NodePool{}
	for _, p := range byID {
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b adminv1.NodePool) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return pools, nil
}

func nameOf(p adminv1.NodePool) string {
	if p.ARM != nil {
		return strings.ToLower(p.ARM.Resource.Name)
	}
	return strings.ToLower(p.ClusterService.Of.GetSpec().GetName())
}

func (s *Server) nodePool(ctx context.Context, cluster database.AdminTarget, name string) (adminv1.NodePool, error) {
	pools, err := s.nodePools(ctx, cluster)
	if err != nil {
		return adminv1.NodePool{}, err
	}
	for _, p := range pools {
		if nameOf(p) == strings.ToLower(name) {
			return p, nil
		}
	}
	return adminv1.NodePool{}, apierror.New(apierror.NotFound, "The cluster has no node pool '%s'.", name)
}

func (s *Server) listCredentials(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	credentials, revocations, err := s.collector.Credentials(ctx, target.ClusterUID)
	return adminv1.CredentialList{Items: credentials, Revocations: revocations}, err
}

// getCredential returns a credential. Only credentials of class sre include the certificate.
func (s *Server) getCredential(ctx context.Context, rq *request) (any, error) {
	c, err := s.Fleet.GetBreakGlassCredential(ctx, &clusterservicev1.GetBreakGlassCredentialRequest{Uid: rq.http.PathValue("credential")})
	if err == nil && c.GetSpec().GetClass() != clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
		c = dump.WithoutCertificate(c)
	}
	rq.audited.object = audit.Object{Kind: "credential", ID: rq.http.PathValue("credential"), Cluster: c.GetClusterUid()}
	return messageResponse(c, err)
}

func (s *Server) listShards(ctx context.Context, _ *request) (any, error) {
	response, err := s.Fleet.ListProvisionShards(ctx, &clusterservicev1.ListProvisionShardsRequest{})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.ShardList{Items: adminv1.Messages(response.GetProvisionShards())}, nil
}

func (s *Server) listARMOperations(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	key, err := database.ResourceKey(target.ResourceID)
	if err != nil {
		return nil, err
	}
	operations, err := s.collector.Operations(ctx, key)
	return adminv1.ARMOperationList{Items: operations}, err
}

func (s *Server) getARMOperation(ctx context.Context, rq *request) (any, error) {
	item, err := s.armOperation(ctx, rq)
	if err != nil {
		return nil, err
	}
	return dump.ARMOperation(&item.Value), nil
}

func (s *Server) armOperation(ctx context.Context, rq *request) (*database.Item[database.OperationDocument], error) {
	id := rq.http.PathValue("operation")
	item, err := s.Database.OperationByID(ctx, id)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return nil, apierror.New(apierror.NotFound, "ARM operation '%s' does not exist; ended operations are kept for a week.", id)
	}
	return item, nil
}

func (s *Server) listOrphans(ctx context.Context, _ *request) (any, error) {
	list := adminv1.OrphanList{Items: []adminv1.Orphan{}}
	ignored, err := s.orphans(ctx, func(orphan adminv1.Orphan) error {
		list.Items = append(list.Items, orphan)
		return nil
	})
	list.Ignored = ignored
	return list, err
}

// orphans calls each for the Maestro bundles of Cluster Service that belong to no work, until each returns an error. It reads
// Maestro first: a work exists before its bundle, so a bundle without a work never has one. It returns the malformed bundles, which may be orphans.
func (s *Server) orphans(ctx context.Context, each func(adminv1.Orphan) error) (wire.Ignored, error) {
	return s.Maestro.EachPage(ctx, func(bundles []adminv1.Orphan) error {
		if len(bundles) == 0 {
			return nil // an empty list of IDs would match all works
		}
		ids := make([]string, len(bundles))
		for i, b := range bundles {
			ids[i] = b.ID
		}
		response, err := s.Fleet.ListWorks(ctx, &clusterservicev1.ListWorksRequest{Ids: ids})
		if err != nil {
			return apierror.FromGRPC(err)
		}
		known := map[string]bool{}
		for _, w := range response.GetWorks() {
			known[w.GetId()] = true
		}
		for _, b := range bundles {
			if known[b.ID] {
				continue
			}
			if err := each(b); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Server) listAzureOrphans(ctx context.Context, _ *request) (any, error) {
	list := adminv1.AzureOrphanList{Items: adminv1.Messages[*clusterservicev1.AzureOrphan](nil)}
	err := clusterservice.EachPage(func(token string) (*clusterservicev1.ListAzureOrphansResponse, error) {
		return s.Fleet.ListAzureOrphans(ctx, &clusterservicev1.ListAzureOrphansRequest{PageSize: listPage, PageToken: token})
	}, func(page *clusterservicev1.ListAzureOrphansResponse) error {
		list.Items = append(list.Items, adminv1.Messages(page.GetOrphans())...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (s *Server) getShard(ctx context.Context, rq *request) (any, error) {
	return messageResponse(s.Fleet.GetProvisionShard(ctx, &clusterservicev1.GetProvisionShardRequest{Name: rq.http.PathValue("shard")}))
}

func (s *Server) planDrain(ctx context.Context, rq *request) (any, error) {
	return messageResponse(s.Fleet.PlanDrain(ctx, &clusterservicev1.PlanDrainRequest{Name: rq.http.PathValue("shard")}))
}

func (s *Server) explainPlacement(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return messageResponse(s.Fleet.ExplainPlacement(ctx, &clusterservicev1.ExplainPlacementRequest{Uid: target.ClusterUID}))
}
