package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// subscriptionInPath returns the registered subscription in the path.
func (s *Server) subscriptionInPath(ctx context.Context, rq *request) (*database.Item[database.SubscriptionDocument], error) {
	id := rq.http.PathValue("subscription")
	if uuid.Validate(id) != nil || len(id) != len(uuid.Nil.String()) {
		return nil, apierror.New(apierror.InvalidParameter, "The subscription ID must be a UUID.").WithTarget("subscription")
	}
	item, err := s.Database.Subscriptions().Find(ctx, database.SubscriptionKey(id))
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		return nil, apierror.New(apierror.NotFound, "The subscription %s is not registered in the region.", strings.ToLower(id))
	}
	return item, nil
}

func (s *Server) getQuota(ctx context.Context, rq *request) (any, error) {
	item, err := s.subscriptionInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	quota := adminv1.Quota{SubscriptionID: item.Key.SubscriptionID}
	if quota.Used, _, err = s.Database.ClusterUsage(ctx, item.Key.SubscriptionID, 0); err != nil {
		return nil, err
	}
	if set := item.Value.ClusterQuota; set != nil {
		quota.Clusters, quota.OperationID, quota.RequestTime = set.Clusters, set.OperationID, &set.RequestTime
	}
	return quota, nil
}

func (s *Server) setQuota(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.SetQuotaRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	switch {
	case (asked.Clusters == nil) != asked.UseDefault:
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "clusters", Message: "Invalid value: exactly one of clusters and useDefault is required"}})
	case asked.Clusters != nil && (*asked.Clusters < 0 || *asked.Clusters > database.MaxClusterQuota):
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "clusters", Message: fmt.Sprintf("Invalid value: %d: must be 0 to %d", *asked.Clusters, database.MaxClusterQuota)}})
	}
	item, err := s.subscriptionInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "subscription", ID: item.Key.SubscriptionID}, asked)
}
