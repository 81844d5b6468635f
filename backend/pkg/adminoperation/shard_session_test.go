package adminoperation_test

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// shardSession stores the session of an operation, as admin does.
func (h *environment) shardSession(t *testing.T, o *database.AdminOperationDocument, change func(*database.AccessSessionDocument)) database.Key {
	t.Helper()
	now := time.Now().UTC()
	v := database.AccessSessionDocument{SessionID: o.OperationID, Shard: "mgmt-1", Mode: "read", Owner: o.Actor, State: database.AccessSessionRequested, RequestTime: now,
		RequestExpirationTime: now.Add(2 * time.Minute), ElevationExpirationTime: now.Add(time.Hour)}
	if change != nil {
		change(&v)
	}
	create(t, h, h.db.AccessSessions(), v.Key(), v)
	return v.Key()
}

func (h *environment) sessionAt(t *testing.T, key database.Key) *database.AccessSessionDocument {
	t.Helper()
	item := must.Get(h.db.AccessSessions().Get(t.Context(), key))(t)
	return &item.Value
}

// onShard returns an operation on a management cluster or on the service cluster, with its intent, and the elevation.
func (h *environment) onShard(t *testing.T, id, action, name string) (database.AdminOperationDocument, database.ElevationDocument) {
	t.Helper()
	return h.signed(t, id, func(o *database.AdminOperationDocument) {
		o.Action, o.Target, o.Parameters = action, database.AdminTarget{Kind: adminv1.TokenSessionTarget(name), ID: name}, []byte(`{"mode":"read","duration":"15m0s"}`)
	})
}

// TestSessionGetsIntent completes a session for a management cluster, and one for the service cluster, with the intent of its operation. A session of another
// engineer, one that has ended, and one that does not exist get none.
func TestSessionGetsIntent(t *testing.T) {
	const onShard = adminv1.ActionShardSessionRequest
	for name, tc := range map[string]struct {
		action, target string
		change         func(*database.AccessSessionDocument)
		want           database.AdminOperationState
	}{
		"requested":           {onShard, "mgmt-1", nil, database.AdminSucceeded},
		"of another engineer": {onShard, "mgmt-1", func(v *database.AccessSessionDocument) { v.Owner.ObjectID = "bob" }, database.AdminFailed},
		"ended":               {onShard, "mgmt-1", func(v *database.AccessSessionDocument) { v.End("alice", "ended by alice", time.Now()) }, database.AdminFailed},
		"of another shard":    {onShard, "mgmt-1", func(v *database.AccessSessionDocument) { v.Shard = "mgmt-2" }, database.AdminFailed},
		"service cluster": {adminv1.ActionServiceClusterSessionRequest, adminv1.ServiceCluster, func(v *database.AccessSessionDocument) {
			v.Shard = adminv1.ServiceCluster
		}, database.AdminSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnvironment(t)
			o, elevation := h.onShard(t, "0b9c1d7e-4a51-4f5e-9f11-2c3d4e5f6071", tc.action, tc.target)
			at := h.shardSession(t, &o, tc.change)
			key := h.insert(t, o, &elevation)
			h.run(t, adminoperation.Options{})
			h.await(t, key, tc.want)
			if v, succeeded := h.sessionAt(t, at), tc.want == database.AdminSucceeded; (v.Intent == o.Intent) != succeeded || (string(v.Parameters) == string(o.Parameters)) != succeeded {
				t.Errorf("the session is %+v", v)
			}
		})
	}
}

// TestEndedElevationEndsSessionsForManagementCluster ends the open sessions of an elevation. Those of another elevation stay.
func TestEndedElevationEndsSessionsForManagementCluster(t *testing.T) {
	for _, name := range []string{"mgmt-1", adminv1.ServiceCluster} {
		t.Run(name, func(t *testing.T) { testEndedElevationEndsSessions(t, name) })
	}
}

func testEndedElevationEndsSessions(t *testing.T, name string) {
	h := newEnvironment(t)
	end, elevation := h.onShard(t, "7c0a4f58-1b3f-4bb4-8e0f-2c1a9c3f8d11", adminv1.ActionElevationEnd, name)
	of := func(id, elevationID string) database.Key {
		o := operation(id)
		o.Actor.ElevationID = elevationID
		return h.shardSession(t, &o, func(v *database.AccessSessionDocument) { v.Shard, v.Intent = name, "intent" })
	}
	own, other := of("0b9c1d7e-4a51-4f5e-9f11-2c3d4e5f6071", elevation.ElevationID), of("0b9c1d7e-4a51-4f5e-9f11-2c3d4e5f6072", "another")
	key := h.insert(t, end, &elevation)
	h.run(t, adminoperation.Options{})
	h.await(t, key, database.AdminSucceeded)
	if v := h.sessionAt(t, own); v.State != database.AccessSessionEnded || v.Intent != "" || v.EndedBy != "backend" {
		t.Errorf("the session is %+v", v)
	}
	if v := h.sessionAt(t, other); v.State != database.AccessSessionRequested || v.Intent == "" {
		t.Errorf("the session of another elevation is %+v", v)
	}
}
