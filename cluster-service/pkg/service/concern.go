package service

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// maxConcerns is the maximum number of concerns in a request.
const maxConcerns = 50

// ListClusterConcerns returns a page of the clusters that are not in their desired state.
func (s *Service) ListClusterConcerns(ctx context.Context, r *csv1.ListClusterConcernsRequest) (*csv1.ListClusterConcernsResponse, error) {
	paged, err := page(r.GetPageSize(), "")
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	f := store.ConcernFilter{Limit: paged.Limit, Concerns: r.GetConcerns(), Shard: r.GetProvisionShard(), Version: r.GetVersion()}
	if err := validVersion(f.Version); err != nil {
		return nil, s.answer(ctx, err)
	}
	var c check
	if r.GetSinceBefore() != nil {
		f.SinceBefore = r.GetSinceBefore().AsTime()
	}
	if len(f.Concerns) > maxConcerns {
		c.fail("concerns", "Too many: %d: must have at most %d items", len(f.Concerns), maxConcerns)
	}
	var ok bool
	if f.AfterSince, f.AfterUID, ok = parseConcernToken(r.GetPageToken()); !ok {
		c.fail("page_token", "Invalid value: must be a token of an earlier page")
	}
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	concerns, err := s.o.Store.ListConcerns(ctx, f)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListClusterConcernsResponse{}
	for _, c := range concerns {
		response.Concerns = append(response.Concerns, &csv1.ClusterConcern{
			ClusterUid: c.UID, ResourceId: c.ResourceID, SubjectResourceId: c.SubjectID, Layer: c.Layer, State: c.State, Since: optionalTime(c.Since),
			ProvisionShard: c.Shard, Version: c.Version, Phase: csv1.ClusterPhase(c.Phase),
		})
	}
	if n := len(concerns); n == f.Limit && n > 0 {
		response.NextPageToken = concernToken(concerns[n-1].Since, concerns[n-1].UID)
	}
	return response, nil
}

// SummarizeClusterConcerns counts the clusters that are not in their desired state.
func (s *Service) SummarizeClusterConcerns(ctx context.Context, r *csv1.SummarizeClusterConcernsRequest) (*csv1.SummarizeClusterConcernsResponse, error) {
	groups, err := s.o.Store.SummarizeConcerns(ctx, r.GetProvisionShard())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.SummarizeClusterConcernsResponse{}
	for _, g := range groups {
		response.Groups = append(response.Groups, &csv1.ClusterConcernGroup{
			Layer: g.Layer, State: g.State, ProvisionShard: g.Shard, Version: g.Version, Clusters: g.Clusters, OldestSince: timestamppb.New(g.Oldest),
		})
	}
	return response, nil
}

// addConcerns sets the concerns of clusters.
func (s *Service) addConcerns(ctx context.Context, clusters ...*csv1.Cluster) error {
	if len(clusters) == 0 {
		return nil
	}
	uids := make([]string, len(clusters))
	for i, c := range clusters {
		uids[i] = c.GetUid()
	}
	concerns, err := s.o.Store.ConcernsOf(ctx, uids)
	for _, c := range clusters {
		if known, waits := concerns[c.GetUid()]; waits {
			c.Concern = &csv1.Concern{SubjectResourceId: known.SubjectID, Layer: known.Layer, State: known.State, Since: optionalTime(known.Since)}
		}
	}
	return err
}

// concernToken returns the token of the page after a concern.
func concernToken(since time.Time, uid string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(since.UTC().Format(time.RFC3339Nano) + "|" + uid))
}

// parseConcernToken reads a token; an empty one is that of the first page.
func parseConcernToken(token string) (since time.Time, uid string, ok bool) {
	if token == "" {
		return time.Time{}, "", true
	}
	decoded, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return time.Time{}, "", false
	}
	at, uid, _ := strings.Cut(string(decoded), "|")
	since, err = time.Parse(time.RFC3339Nano, at)
	return since, uid, err == nil && isUUID(uid)
}
