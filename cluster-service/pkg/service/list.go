package service

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	defaultPage = 100
	maxPage     = 500
	// bookmarkInterval is the period of bookmarks on a stream without changes.
	bookmarkInterval = 30 * time.Second
)

// page validates the paging fields of a request.
func page(size int32, token string) (store.Filter, error) {
	var c check
	f := store.Filter{Limit: int(size)}
	if size == 0 {
		f.Limit = defaultPage
	}
	if size < 0 || size > maxPage {
		c.fail("page_size", "Invalid value: %d: must be between 0 and %d", size, maxPage)
	}
	if token != "" {
		id, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(id) != 16 {
			c.fail("page_token", "Invalid value: must be a token of an earlier page")
		} else {
			f.After = uuid.UUID(id).String()
		}
	}
	return f, apierror.InvalidFields(c.violations)
}

// nextToken returns the token of the next page after a row with uid; empty if the page was not full.
func nextToken(full bool, uid string) string {
	id, err := uuid.Parse(uid)
	if !full || err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ListClusters returns a page of clusters.
func (s *Service) ListClusters(ctx context.Context, r *csv1.ListClustersRequest) (*csv1.ListClustersResponse, error) {
	f, err := page(r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	f.Shard, f.UIDs, f.Version = r.GetProvisionShard(), r.GetUids(), r.GetVersion()
	for _, err := range []error{validUIDs("uids", f.UIDs), validVersion(f.Version)} {
		if err != nil {
			return nil, s.answer(ctx, err)
		}
	}
	f.Identifiers = store.Identifiers{
		ResourceID: r.GetResourceId(), ResourceIDPrefix: r.GetResourceIdPrefix(), Subscription: r.GetSubscriptionId(),
		Name: r.GetName(), NamePrefix: r.GetNamePrefix(), ClusterID: r.GetClusterId(), BaseDomainPrefix: r.GetBaseDomainPrefix(), APIHost: r.GetApiHost(),
	}
	for _, phase := range r.GetPhases() {
		f.Phases = append(f.Phases, int16(phase))
	}
	clusters, revision, err := s.o.Store.ListClusters(ctx, f)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListClustersResponse{Revision: revision}
	for _, c := range clusters {
		response.Clusters = append(response.Clusters, c.Proto())
	}
	if err := s.addConcerns(ctx, response.Clusters...); err != nil {
		return nil, s.answer(ctx, err)
	}
	if len(clusters) > 0 {
		response.NextPageToken = nextToken(len(clusters) == f.Limit, clusters[len(clusters)-1].UID)
	}
	return response, nil
}

// ListNodePools returns a page of node pools.
func (s *Service) ListNodePools(ctx context.Context, r *csv1.ListNodePoolsRequest) (*csv1.ListNodePoolsResponse, error) {
	pools, token, revision, err := listOfCluster(ctx, r, r.GetPhases(), s.o.Store.ListNodePools, func(p *fleet.NodePool) string { return p.UID })
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListNodePoolsResponse{Revision: revision, NextPageToken: token}
	for _, p := range pools {
		response.NodePools = append(response.NodePools, p.Proto())
	}
	return response, nil
}

// ListExternalAuths returns a page of external authentications.
func (s *Service) ListExternalAuths(ctx context.Context, r *csv1.ListExternalAuthsRequest) (*csv1.ListExternalAuthsResponse, error) {
	auths, token, revision, err := listOfCluster(ctx, r, r.GetPhases(), s.o.Store.ListExternalAuths, func(a *fleet.ExternalAuth) string { return a.UID })
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListExternalAuthsResponse{Revision: revision, NextPageToken: token}
	for _, a := range auths {
		response.ExternalAuths = append(response.ExternalAuths, a.Proto())
	}
	return response, nil
}

// ListBreakGlassCredentials returns a page of credentials.
func (s *Service) ListBreakGlassCredentials(ctx context.Context, r *csv1.ListBreakGlassCredentialsRequest) (*csv1.ListBreakGlassCredentialsResponse, error) {
	credentials, token, revision, err := listOfCluster(ctx, r, r.GetStates(), s.o.Store.ListCredentials, func(c *fleet.Credential) string { return c.UID })
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListBreakGlassCredentialsResponse{Revision: revision, NextPageToken: token}
	for _, c := range credentials {
		response.Credentials = append(response.Credentials, c.Proto())
	}
	return response, nil
}

// ListBreakGlassRevocations returns a page of revocations.
func (s *Service) ListBreakGlassRevocations(ctx context.Context, r *csv1.ListBreakGlassRevocationsRequest) (*csv1.ListBreakGlassRevocationsResponse, error) {
	revocations, token, revision, err := listOfCluster(ctx, r, r.GetStates(), s.o.Store.ListRevocations, func(v *fleet.Revocation) string { return v.UID })
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListBreakGlassRevocationsResponse{Revision: revision, NextPageToken: token}
	for _, v := range revocations {
		response.Revocations = append(response.Revocations, v.Proto())
	}
	return response, nil
}

// listOfCluster returns a page of a cluster's children or of all clusters' children, and the token of the next page.
func listOfCluster[T any, P ~int32](ctx context.Context, r interface {
	GetPageSize() int32
	GetPageToken() string
	GetClusterUid() string
}, phases []P, read func(context.Context, store.Filter) ([]T, int64, error), uid func(T) string) (rows []T, token string, revision int64, err error) {
	f, err := page(r.GetPageSize(), r.GetPageToken())
	if err == nil && r.GetClusterUid() != "" {
		err = validUID("cluster_uid", r.GetClusterUid())
	}
	if err != nil {
		return nil, "", 0, err
	}
	f.ClusterUID = r.GetClusterUid()
	for _, phase := range phases {
		f.Phases = append(f.Phases, int16(phase))
	}
	if rows, revision, err = read(ctx, f); err != nil {
		return nil, "", 0, err
	}
	if len(rows) > 0 {
		token = nextToken(len(rows) == f.Limit, uid(rows[len(rows)-1]))
	}
	return rows, token, revision, nil
}

// Watch sends changes in order of revision until the client closes the stream.
func (s *Service) Watch(r *csv1.WatchRequest, stream grpc.ServerStreamingServer[csv1.WatchResponse]) error {
	ctx, after := stream.Context(), r.GetAfterRevision()
	if after < 0 {
		return s.answer(ctx, apierror.InvalidFields([]apierror.Violation{{Field: "after_revision", Message: "Invalid value: must not be negative"}}))
	}
	if err := s.o.Hub.Check(ctx, after); err != nil {
		return s.answer(ctx, ended(err))
	}
	// The first wait is short, so that the bookmark after catching up is sent soon.
	caughtUp := false
	for {
		patience := bookmarkInterval
		if !caughtUp {
			patience = 0
		}
		batch, err := s.o.Hub.Next(ctx, after, patience)
		if err != nil {
			return s.answer(ctx, ended(err))
		}
		for _, change := range batch.Changes {
			if err := stream.Send(watchResponse(change)); err != nil {
				return err
			}
		}
		after = batch.Revision
		if batch.Current && (len(batch.Changes) == 0 || !caughtUp) {
			caughtUp = true
			if err := stream.Send(&csv1.WatchResponse{Revision: after, Event: &csv1.WatchResponse_Bookmark{Bookmark: &csv1.Bookmark{}}}); err != nil {
				return err
			}
		}
	}
}

func ended(err error) error {
	if errors.Is(err, store.ErrCompacted) {
		return apierror.New(apierror.OutOfRange, "Changes after this revision are no longer stored: list again, then watch from the revision of the list.").WithReason(ReasonRevisionCompacted)
	}
	if errors.Is(err, store.ErrWatchStopped) {
		return apierror.New(apierror.Unavailable, "This replica is stopping: watch again from the last received revision.").WithRetryAfter(100 * time.Millisecond)
	}
	return err
}

func watchResponse(change store.Change) *csv1.WatchResponse {
	response := &csv1.WatchResponse{Revision: change.Revision}
	switch {
	case change.Cluster != nil:
		response.Event = &csv1.WatchResponse_Cluster{Cluster: change.Cluster.Proto()}
	case change.NodePool != nil:
		response.Event = &csv1.WatchResponse_NodePool{NodePool: change.NodePool.Proto()}
	case change.ExternalAuth != nil:
		response.Event = &csv1.WatchResponse_ExternalAuth{ExternalAuth: change.ExternalAuth.Proto()}
	case change.Credential != nil:
		response.Event = &csv1.WatchResponse_BreakGlassCredential{BreakGlassCredential: change.Credential.Proto()}
	case change.Revocation != nil:
		response.Event = &csv1.WatchResponse_BreakGlassRevocation{BreakGlassRevocation: change.Revocation.Proto()}
	case change.Upgrade != nil:
		response.Event = &csv1.WatchResponse_Upgrade{Upgrade: change.Upgrade.Proto()}
	}
	return response
}
