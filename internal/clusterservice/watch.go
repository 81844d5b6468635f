package clusterservice

import (
	"context"
	"slices"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// listPage is how many resources List asks for at a time.
const listPage = 500

// Change is one message of a watch: a report, or a bookmark when Report is nil.
type Change struct {
	// Revision up to which, with this change, everything has been sent.
	Revision int64
	Report   *Report
}

// Watch calls handle for every change after a revision, in order, and returns when the stream ends: with handle's error,
// or with an *apierror.Error, whose Reason is ReasonRevisionCompacted when the changes are no longer kept.
func (c *Client) Watch(ctx context.Context, after int64, handle func(Change) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Watch(ctx, &clusterservicev1.WatchRequest{AfterRevision: after})
	if err != nil {
		return apierror.FromGRPC(err)
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return apierror.FromGRPC(err)
		}
		change := Change{Revision: message.GetRevision()}
		switch event := message.GetEvent().(type) {
		case *clusterservicev1.WatchResponse_Cluster:
			report := ClusterReport(event.Cluster)
			change.Report = &report
		case *clusterservicev1.WatchResponse_NodePool:
			report := NodePoolReport(event.NodePool)
			change.Report = &report
		}
		if err := handle(change); err != nil {
			return err
		}
	}
}

// List calls handle for every cluster and node pool that Cluster Service knows, tombstones included, and returns a
// revision from which a watch sees everything that the list may have missed.
func (c *Client) List(ctx context.Context, handle func(Report) error) (int64, error) {
	revision, err := c.listClusters(ctx, handle)
	if err != nil {
		return 0, err
	}
	return revision, c.listNodePools(ctx, handle)
}

func (c *Client) listClusters(ctx context.Context, handle func(Report) error) (revision int64, err error) {
	request := &clusterservicev1.ListClustersRequest{PageSize: listPage, Phases: phases[clusterservicev1.ClusterPhase](clusterservicev1.ClusterPhase_name)}
	for first := true; ; first = false {
		page, err := c.rpc.ListClusters(ctx, request)
		if err != nil {
			return 0, apierror.FromGRPC(err)
		}
		if first {
			revision = page.GetRevision()
		}
		for _, cluster := range page.GetClusters() {
			if err := handle(ClusterReport(cluster)); err != nil {
				return 0, err
			}
		}
		if page.GetNextPageToken() == "" {
			return revision, nil
		}
		request.PageToken = page.GetNextPageToken()
	}
}

func (c *Client) listNodePools(ctx context.Context, handle func(Report) error) error {
	request := &clusterservicev1.ListNodePoolsRequest{PageSize: listPage, Phases: phases[clusterservicev1.NodePoolPhase](clusterservicev1.NodePoolPhase_name)}
	for {
		page, err := c.rpc.ListNodePools(ctx, request)
		if err != nil {
			return apierror.FromGRPC(err)
		}
		for _, pool := range page.GetNodePools() {
			if err := handle(NodePoolReport(pool)); err != nil {
				return err
			}
		}
		if page.GetNextPageToken() == "" {
			return nil
		}
		request.PageToken = page.GetNextPageToken()
	}
}

// phases are all that there are, which is how a list includes the deleted.
func phases[P ~int32](names map[int32]string) []P {
	var all []P
	for number := range names {
		if number != 0 {
			all = append(all, P(number))
		}
	}
	slices.Sort(all)
	return all
}
