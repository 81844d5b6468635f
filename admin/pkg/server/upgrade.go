package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

func (s *Server) listUpgrades(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	list := adminv1.UpgradeList{Items: adminv1.Messages[*clusterservicev1.Upgrade](nil)}
	err = clusterservice.EachPage(func(token string) (*clusterservicev1.ListUpgradesResponse, error) {
		return s.Fleet.ListUpgrades(ctx, &clusterservicev1.ListUpgradesRequest{ClusterUid: target.ClusterUID, PageSize: listPage, PageToken: token})
	}, func(page *clusterservicev1.ListUpgradesResponse) error {
		list.Items = append(list.Items, adminv1.Messages(page.GetUpgrades())...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// checkAcknowledge requires an elevation of the class of upgrades.acknowledge for a request that acknowledges gates.
func (s *Server) checkAcknowledge(ctx context.Context, rq *request, r proto.Message) error {
	if len(r.(*clusterservicev1.StartUpgradeRequest).GetAcknowledge()) == 0 {
		return nil
	}
	elevation, err := s.elevationFor(ctx, rq, adminv1.ClassOf(adminv1.ActionUpgradeAcknowledge))
	if err == nil {
		rq.elevation = elevation
	}
	return err
}

func (s *Server) planUpgrade(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	query := rq.http.URL.Query()
	follow, known := nodePoolFollows[query.Get("nodePools")]
	if !known {
		return nil, apierror.New(apierror.InvalidParameter, "Unsupported value: '%s': supported values: none, unpinned, all.", query.Get("nodePools")).WithTarget("nodePools")
	}
	return messageResponse(s.Fleet.PlanUpgrade(ctx, &clusterservicev1.PlanUpgradeRequest{ClusterUid: target.ClusterUID, Version: query.Get("version"), NodePools: follow}))
}

// nodePoolFollows maps the values of the parameter nodePools.
var nodePoolFollows = map[string]clusterservicev1.NodePoolFollow{
	"":         clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_NONE,
	"none":     clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_NONE,
	"unpinned": clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED,
	"all":      clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_ALL,
}

// activeStates lists the states of upgrades in progress.
var activeStates = []clusterservicev1.UpgradeState{
	clusterservicev1.UpgradeState_UPGRADE_STATE_WAITING, clusterservicev1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, clusterservicev1.UpgradeState_UPGRADE_STATE_NODE_POOLS,
}

func (s *Server) listRegionUpgrades(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	active, err := rq.flag("active")
	if err != nil {
		return nil, err
	}
	asked := &clusterservicev1.ListUpgradesRequest{PageSize: int32(size), PageToken: token}
	if active {
		asked.States = activeStates
	}
	response, err := s.Fleet.ListUpgrades(ctx, asked)
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.UpgradeList{Items: adminv1.Messages(response.GetUpgrades()), NextPageToken: response.GetNextPageToken()}, nil
}

func (s *Server) getUpgradePolicy(ctx context.Context, rq *request) (any, error) {
	return messageResponse(s.Fleet.GetUpgradePolicy(ctx, &clusterservicev1.GetUpgradePolicyRequest{Name: rq.http.PathValue("policy")}))
}

func (s *Server) getUpgrade(ctx context.Context, rq *request) (any, error) {
	return messageResponse(s.Fleet.GetUpgrade(ctx, &clusterservicev1.GetUpgradeRequest{Uid: rq.http.PathValue("upgrade")}))
}

func (s *Server) listUpgradePolicies(ctx context.Context, _ *request) (any, error) {
	response, err := s.Fleet.ListUpgradePolicies(ctx, &clusterservicev1.ListUpgradePoliciesRequest{})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.UpgradePolicyList{Items: adminv1.Messages(response.GetPolicies())}, nil
}
