package server

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/explanation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

func (s *Server) me(_ context.Context, rq *request) (any, error) {
	return adminv1.Identity{Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Roles: rq.roles}, nil
}

func (s *Server) listClusters(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	query := rq.http.URL.Query()
	waiting, err := rq.flag("notReady")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"olderThan", "concern"} {
		if query.Get(name) != "" && !waiting {
			return nil, apierror.New(apierror.InvalidParameter, "The parameter requires notReady=true.").WithTarget(name)
		}
	}
	if waiting {
		for _, name := range []string{"q", "subscription", "phase"} {
			if query.Get(name) != "" {
				return nil, apierror.New(apierror.InvalidParameter, "The parameter excludes notReady.").WithTarget(name)
			}
		}
		return s.listConcerns(ctx, rq, size, token)
	}
	for _, filter := range []string{"shard", "phase", "version"} {
		for _, name := range []string{"q", "subscription"} {
			if query.Get(filter) != "" && query.Get(name) != "" {
				return nil, apierror.New(apierror.InvalidParameter, "The parameter excludes %s.", name).WithTarget(filter)
			}
		}
	}
	if q := query.Get("q"); q != "" {
		found, err := s.finder.Find(ctx, q)
		return adminv1.ClusterList{Items: found}, err
	}
	if subscription := query.Get("subscription"); subscription != "" {
		return s.finder.ListSubscription(ctx, subscription, token, size)
	}
	r := &clusterservicev1.ListClustersRequest{PageSize: int32(size), PageToken: token, ProvisionShard: query.Get("shard"), Version: query.Get("version")}
	if text := query.Get("phase"); text != "" {
		if r.Phases, err = clusterPhases(text); err != nil {
			return nil, err
		}
	}
	return s.finder.ListFleet(ctx, r)
}

func (s *Server) getCluster(ctx context.Context, rq *request) (any, error) {
	return s.finder.One(ctx, rq.http.PathValue("cluster"))
}

func (s *Server) dumpCluster(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	rq.audited.object = audit.Object{Kind: "cluster", ID: cluster.UID, ResourceID: cluster.ResourceID, Cluster: cluster.UID}
	return s.collector.Collect(ctx, cluster), nil
}

// showJournal returns what monitor recorded about a cluster.
func (s *Server) showJournal(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	return s.collector.Journal(ctx, cluster.UID)
}

// explanationBudget is the default time of an explanation. A layer that does not respond delays it no longer. The search of the cluster has half of
// it.
const explanationBudget = 2400 * time.Millisecond

// explainCluster explains a cluster from what ARM and Cluster Service report and from the states of the region's components, which
// it reads at the same time. A layer that cannot be read makes the explanation partial.
func (s *Server) explainCluster(ctx context.Context, rq *request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ExplanationBudget)
	defer cancel()
	components := make(chan []adminv1.Component, 1)
	go func() { components <- s.Layers.Check(ctx) }()

	name := rq.http.PathValue("cluster")
	lookupCtx, stop := context.WithTimeout(ctx, s.ExplanationBudget/2)
	defer stop()
	cluster, err := s.finder.One(lookupCtx, name)
	if err != nil {
		away := <-components
		switch apierror.KindOf(err) {
		case apierror.Internal, apierror.Unavailable, apierror.Throttled:
			if explained := explanation.Unfound(name, time.Now().UTC(), away, unreadable(err)); explained != nil {
				return explained, nil
			}
		}
		return nil, err
	}
	hosted := make(chan []adminv1.Component, 1)
	go func() { hosted <- s.askHostedAPI(ctx, cluster) }()
	dump := s.collector.CollectWithoutBundles(ctx, cluster)
	return explanation.Explain(name, dump, append(<-components, <-hosted...)), nil
}

// unreadable returns the reason why a search failed.
func unreadable(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || apierror.KindOf(err) == apierror.Internal {
		return "the search did not complete in time."
	}
	return apierror.As(err).Message
}

// askHostedAPI returns the state of the API server of a cluster if it is away. A name that does not resolve from here is no proof.
func (s *Server) askHostedAPI(ctx context.Context, cluster adminv1.Cluster) []adminv1.Component {
	if cluster.APIURL == "" || s.AskHostedAPI == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Layers.Deadline())
	defer cancel()
	asked := time.Now().UTC()
	err := s.AskHostedAPI(ctx, cluster.APIURL)
	var unresolved *net.DNSError
	if err == nil || errors.As(err, &unresolved) {
		return nil
	}
	c := adminv1.Component{Name: "API server of " + cluster.Name, Layer: adminv1.ComponentHostedAPI, ProvisionShard: cluster.ProvisionShard, Time: asked}
	c.State, c.Message = layers.Classify(err)
	return []adminv1.Component{c}
}
