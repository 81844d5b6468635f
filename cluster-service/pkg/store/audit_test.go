package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// refusedAction is an action whose beginning cannot be stored.
type refusedAction struct {
	audit.Action
	// asked is the number of waits for it.
	asked int
}

var errNotStored = errors.New("the record is not stored")

func (a *refusedAction) Durable(context.Context) error { a.asked++; return errNotStored }

// TestChangesNeedTheirAuditRecord changes the fleet in each way that an engineer can ask for, with a record that cannot be stored. Nothing
// is committed, and the change is possible later.
func TestChangesNeedTheirAuditRecord(t *testing.T) {
	s := open(t, store.Options{})
	must.Do(t, s.ConfigureShards(t.Context(), []config.Shard{{Name: "mgmt-1", Capacity: 5}}))
	uid := uuid.NewString()
	changes := []struct {
		name   string
		change func(ctx context.Context) error
	}{
		{"an aggregate", func(ctx context.Context) error { _, err := put(ctx, s, uid); return err }},
		{"a shard", func(ctx context.Context) error {
			_, err := s.ChangeShard(ctx, "mgmt-1", func(shard *store.Shard, _ []store.Shard) (*store.Shard, *store.ShardChange, error) {
				shard.Cordoned = true
				return shard, &store.ShardChange{Time: s.Now(), Action: "cordon"}, nil
			})
			return err
		}},
		{"a policy", func(ctx context.Context) error {
			_, err := s.SaveUpgradePolicy(ctx, "policy", &csv1.UpgradePolicySpec{}, &csv1.Actor{Name: "ada"})
			return err
		}},
		{"the deletion of a policy", func(ctx context.Context) error { return s.DeleteUpgradePolicy(ctx, "policy") }},
	}
	state := func() [3]bool {
		aggregate, err := s.Read(t.Context(), uid)
		shards, shardsErr := s.Shards(t.Context())
		policies, policiesErr := s.UpgradePolicies(t.Context())
		must.Do(t, errors.Join(err, shardsErr, policiesErr))
		return [3]bool{aggregate.Cluster != nil, shards[0].Cordoned, len(policies) > 0}
	}
	for _, c := range changes {
		before := state()
		action := &refusedAction{}
		// The transaction notes the ID of the call, which must not prevent the next attempt.
		if err := c.change(store.WithCallID(audit.WithAction(t.Context(), action), c.name)); !errors.Is(err, errNotStored) || action.asked != 1 {
			t.Errorf("%s: %v after %d waits", c.name, err, action.asked)
		}
		if after := state(); after != before {
			t.Errorf("%s changed without a record: %v, %v", c.name, before, after)
		}
		if err := c.change(store.WithCallID(t.Context(), c.name)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := state(); after == before {
			t.Errorf("%s did not change", c.name)
		}
	}
}
