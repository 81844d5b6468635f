package adminoperation_test

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestSetQuota sets and resets the quota of a subscription. An operation that was requested earlier and is executed later fails.
func TestSetQuota(t *testing.T) {
	h := newEnvironment(t)
	create(t, h, h.db.Subscriptions(), database.SubscriptionKey(subscription), database.SubscriptionDocument{Subscription: hub.Subscription{State: hub.Registered}})
	h.run(t, adminoperation.Options{})
	quota := func() *database.ClusterQuota {
		t.Helper()
		item := must.Get(h.db.Subscriptions().Get(t.Context(), database.SubscriptionKey(subscription)))(t)
		if item.Value.Subscription.State != hub.Registered {
			t.Errorf("the subscription is %+v", item.Value.Subscription)
		}
		return item.Value.ClusterQuota
	}
	target := database.AdminTarget{Kind: "subscription", ID: subscription}
	many := 250
	h.await(t, h.requestOn(t, "raise", adminv1.ActionQuotaSet, target, adminv1.SetQuotaRequest{Clusters: &many}), database.AdminSucceeded)
	if got := quota(); got == nil || got.Clusters == nil || *got.Clusters != many || got.OperationID != "raise" {
		t.Fatalf("the quota is %+v", got)
	}
	few := 3
	h.await(t, h.request(t, "late", adminv1.ActionQuotaSet, adminv1.SetQuotaRequest{Clusters: &few}, func(o *database.AdminOperationDocument) {
		o.Target, o.StartTime = target, o.StartTime.Add(-time.Hour)
	}), database.AdminFailed)
	if got := quota(); got.OperationID != "raise" {
		t.Errorf("an earlier request has replaced the quota: %+v", got)
	}
	h.await(t, h.requestOn(t, "reset", adminv1.ActionQuotaSet, target, adminv1.SetQuotaRequest{UseDefault: true}), database.AdminSucceeded)
	if got := quota(); got.Clusters != nil || got.OperationID != "reset" {
		t.Errorf("after the reset the quota is %+v", got)
	}
	h.await(t, h.requestOn(t, "unknown", adminv1.ActionQuotaSet, database.AdminTarget{Kind: "subscription", ID: "99999999-2222-3333-4444-555555555555"},
		adminv1.SetQuotaRequest{UseDefault: true}), database.AdminFailed)
}
