package clusterservice

import (
	"context"
	"slices"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	// listPage is how many resources List asks for at a time.
	listPage = 500
	// pageTimeout is how long one answer may take: who lists goes on following after it, and must not wait for ever.
	pageTimeout = 30 * time.Second
)

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
		case *clusterservicev1.WatchResponse_ExternalAuth:
			report := ExternalAuthReport(event.ExternalAuth)
			change.Report = &report
		case *clusterservicev1.WatchResponse_BreakGlassCredential:
			report := CredentialReport(event.BreakGlassCredential)
			change.Report = &report
		case *clusterservicev1.WatchResponse_BreakGlassRevocation:
			report := RevocationReport(event.BreakGlassRevocation)
			change.Report = &report
		}
		if err := handle(change); err != nil {
			return err
		}
	}
}

// List calls handle for everything that Cluster Service knows, tombstones included, and returns a revision from which a
// watch sees everything that the list may have missed.
func (c *Client) List(ctx context.Context, handle func(Report) error) (revision int64, err error) {
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
		// The first page of the first list is what the watch begins after: it is the oldest.
		oldest := i == 0
		err := EachPage(func(token string) (page, error) {
			ctx, cancel := context.WithTimeout(ctx, pageTimeout)
			defer cancel()
			return list(ctx, token)
		}, func(p page) error {
			if oldest {
				revision, oldest = p.revision, false
			}
			for _, report := range p.reports {
				if err := handle(report); err != nil {
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

// page is one answer of a list.
type page struct {
	reports  []Report
	next     string
	revision int64
}

// GetNextPageToken is that of the answer.
func (p page) GetNextPageToken() string { return p.next }

func pageOf[T any](response interface {
	GetNextPageToken() string
	GetRevision() int64
}, resources []T, read func(T) Report) page {
	p := page{next: response.GetNextPageToken(), revision: response.GetRevision()}
	for _, resource := range resources {
		p.reports = append(p.reports, read(resource))
	}
	return p
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
