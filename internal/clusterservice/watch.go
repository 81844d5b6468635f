package clusterservice

import (
	"context"
	"slices"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	// listPage is the page size of List.
	listPage = 500
	// pageTimeout bounds the response of one page, so that a silent server cannot block List.
	pageTimeout = 30 * time.Second
)

// Change is one entry of a watch or a list: a report, an error in its place, or a bookmark with neither.
type Change struct {
	// Revision is the position in the fleet's history up to which, including this change, a watch has sent everything.
	// A list does not set it.
	Revision int64
	Report   *Report
	// Err is set if the resource holds a value that this release does not support. One resource that a newer release wrote
	// must not stop the changes of all others, so that Watch and List continue after it.
	Err error
}

func changeOf[R any](resource R, read func(R) (Report, error)) Change {
	report, err := read(resource)
	if err != nil {
		return Change{Err: err}
	}
	return Change{Report: &report}
}

// Watch calls handle for every change after a revision, in order. It returns when the stream ends: with handle's error, or
// with an *apierror.Error. The latter has ReasonRevisionCompacted if the changes after the revision are not stored any more.
func (c *Client) Watch(ctx context.Context, after int64, handle func(Change) error) error {
	return WatchMessages(ctx, c.rpc, after, func(message *clusterservicev1.WatchResponse) error {
		var change Change
		switch event := message.GetEvent().(type) {
		case *clusterservicev1.WatchResponse_Cluster:
			change = changeOf(event.Cluster, ClusterReport)
		case *clusterservicev1.WatchResponse_NodePool:
			change = changeOf(event.NodePool, NodePoolReport)
		case *clusterservicev1.WatchResponse_ExternalAuth:
			change = changeOf(event.ExternalAuth, ExternalAuthReport)
		case *clusterservicev1.WatchResponse_BreakGlassCredential:
			change = changeOf(event.BreakGlassCredential, CredentialReport)
		case *clusterservicev1.WatchResponse_BreakGlassRevocation:
			change = changeOf(event.BreakGlassRevocation, RevocationReport)
		}
		change.Revision = message.GetRevision()
		return handle(change)
	})
}

// WatchMessages is Watch for clients that need the messages themselves.
func WatchMessages(ctx context.Context, rpc clusterservicev1.ClusterServiceClient, after int64, handle func(*clusterservicev1.WatchResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := rpc.Watch(ctx, &clusterservicev1.WatchRequest{AfterRevision: after})
	if err != nil {
		return apierror.FromGRPC(err)
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return apierror.FromGRPC(err)
		}
		if err := handle(message); err != nil {
			return err
		}
	}
}

// List calls handle for every resource that Cluster Service stores, including tombstones. It returns a revision: a watch
// that starts there sees every change that the list may have missed.
func (c *Client) List(ctx context.Context, handle func(Change) error) (revision int64, err error) {
	lists := []func(ctx context.Context, token string) (page, error){
		func(ctx context.Context, token string) (page, error) {
			request := &clusterservicev1.ListClustersRequest{PageSize: listPage, PageToken: token, Phases: phases[clusterservicev1.ClusterPhase](clusterservicev1.ClusterPhase_name)}
			response, err := c.rpc.ListClusters(ctx, request)
			return pageOf(response, response.GetClusters(), ClusterReport), err
		},
		func(ctx context.Context, token string) (page, error) {
			request := &clusterservicev1.ListNodePoolsRequest{PageSize: listPage, PageToken: token, Phases: phases[clusterservicev1.NodePoolPhase](clusterservicev1.NodePoolPhase_name)}
			response, err := c.rpc.ListNodePools(ctx, request)
			return pageOf(response, response.GetNodePools(), NodePoolReport), err
		},
		func(ctx context.Context, token string) (page, error) {
			request := &clusterservicev1.ListExternalAuthsRequest{PageSize: listPage, PageToken: token, Phases: phases[clusterservicev1.ExternalAuthPhase](clusterservicev1.ExternalAuthPhase_name)}
			response, err := c.rpc.ListExternalAuths(ctx, request)
			return pageOf(response, response.GetExternalAuths(), ExternalAuthReport), err
		},
		func(ctx context.Context, token string) (page, error) {
			response, err := c.rpc.ListBreakGlassCredentials(ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{PageSize: listPage, PageToken: token})
			return pageOf(response, response.GetCredentials(), CredentialReport), err
		},
		func(ctx context.Context, token string) (page, error) {
			response, err := c.rpc.ListBreakGlassRevocations(ctx, &clusterservicev1.ListBreakGlassRevocationsRequest{PageSize: listPage, PageToken: token})
			return pageOf(response, response.GetRevocations(), RevocationReport), err
		},
	}
	for i, list := range lists {
		// The first page of the first list has the oldest revision; the watch must start there.
		oldest := i == 0
		err := EachPage(func(token string) (page, error) {
			ctx, cancel := context.WithTimeout(ctx, pageTimeout)
			defer cancel()
			return list(ctx, token)
		}, func(p page) error {
			if oldest {
				revision, oldest = p.revision, false
			}
			for _, change := range p.changes {
				if err := handle(change); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// page is one page of a list.
type page struct {
	changes  []Change
	next     string
	revision int64
}

// GetNextPageToken implements the constraint of EachPage.
func (p page) GetNextPageToken() string { return p.next }

func pageOf[T any](response interface {
	GetNextPageToken() string
	GetRevision() int64
}, resources []T, read func(T) (Report, error)) page {
	p := page{next: response.GetNextPageToken(), revision: response.GetRevision()}
	for _, resource := range resources {
		p.changes = append(p.changes, changeOf(resource, read))
	}
	return p
}

// phases returns all phases in order. Deleted resources are in a list only if the request names their phase.
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
