package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/admin/pkg/explanation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// explainRegion explains the region from the states of its components and from what Cluster Service reports of its clusters, which
// it reads at the same time.
func (s *Server) explainRegion(ctx context.Context, _ *request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ExplanationBudget)
	defer cancel()
	f := explanation.RegionFacts{Concerns: []adminv1.ConcernGroup{}}
	var shardsErr, concernsErr error
	var all sync.WaitGroup
	all.Go(func() { f.Components = s.Layers.Check(ctx) })
	all.Go(func() {
		response, err := s.Fleet.ListProvisionShards(ctx, &clusterservicev1.ListProvisionShardsRequest{})
		f.Shards, shardsErr = response.GetProvisionShards(), err
	})
	all.Go(func() {
		response, err := s.Fleet.SummarizeClusterConcerns(ctx, &clusterservicev1.SummarizeClusterConcernsRequest{})
		concernsErr = err
		for _, g := range response.GetGroups() {
			f.Concerns = append(f.Concerns, adminv1.ConcernGroup{Layer: g.GetLayer(), State: g.GetState(), ProvisionShard: g.GetProvisionShard(), Version: g.GetVersion(),
				Clusters: int(g.GetClusters()), OldestSince: g.GetOldestSince().AsTime()})
		}
	})
	all.Wait()
	f.Time = time.Now().UTC()
	for _, err := range []error{shardsErr, concernsErr} {
		if err != nil {
			f.Unavailable = map[string]string{adminv1.LayerClusterService: unreadable(apierror.FromGRPC(err))}
		}
	}
	return explanation.Region(f), nil
}

// listConcerns returns a page of the clusters that are not in their desired state, those that have waited longest first.
func (s *Server) listConcerns(ctx context.Context, rq *request, size int, token string) (any, error) {
	query := rq.http.URL.Query()
	r := &clusterservicev1.ListClusterConcernsRequest{PageSize: int32(size), PageToken: token, ProvisionShard: query.Get("shard"), Version: query.Get("version")}
	if text := query.Get("olderThan"); text != "" {
		age, err := time.ParseDuration(text)
		if err != nil || age < 0 {
			return nil, apierror.New(apierror.InvalidParameter, "Invalid value: '%s': must be a duration such as 10m.", text).WithTarget("olderThan")
		}
		r.SinceBefore = timestamppb.New(time.Now().Add(-age))
	}
	if text := query.Get("concern"); text != "" {
		r.Concerns = strings.Split(text, ",")
	}
	response, err := s.Fleet.ListClusterConcerns(ctx, r)
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	list := adminv1.ClusterList{Items: []adminv1.Cluster{}, NextPageToken: response.GetNextPageToken()}
	for _, c := range response.GetConcerns() {
		cluster := s.finder.FromFleet(&clusterservicev1.Cluster{Uid: c.GetClusterUid(), ResourceId: c.GetResourceId(),
			Concern: &clusterservicev1.Concern{SubjectResourceId: c.GetSubjectResourceId(), Layer: c.GetLayer(), State: c.GetState(), Since: c.GetSince()},
			Status:  &clusterservicev1.ClusterStatus{Phase: c.GetPhase(), ProvisionShard: c.GetProvisionShard()}})
		cluster.Name = c.GetResourceId()[strings.LastIndexByte(c.GetResourceId(), '/')+1:]
		cluster.Namespace, cluster.Version = "", c.GetVersion()
		list.Items = append(list.Items, cluster)
	}
	return list, nil
}
