package store

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestEnsureConsumersRegistersMissing calls EnsureConsumers from several replicas at once, with a consumer that has labels and one that is not
// in their lists.
func TestEnsureConsumersRegistersMissing(t *testing.T) {
	s, ctx := open(t), t.Context()
	labels := map[string]string{"added": "by hand"}
	before := must.Get(s.CreateConsumer(ctx, "mgmt-1", labels))(t)
	must.Get(s.CreateConsumer(ctx, "mgmt-0", nil))(t)
	var mu sync.Mutex
	var created []string
	var replicas sync.WaitGroup
	for range 8 {
		replicas.Go(func() {
			names, err := s.EnsureConsumers(ctx, []string{"mgmt-1", "mgmt-2", "mgmt-3"})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			created = append(created, names...)
		})
	}
	replicas.Wait()
	slices.Sort(created)
	if diff := cmp.Diff([]string{"mgmt-2", "mgmt-3"}, created); diff != "" {
		t.Errorf("the created consumers of all replicas (-want +have):\n%s", diff)
	}
	names, err := s.ConsumerNames(ctx)
	if diff := cmp.Diff([]string{"mgmt-0", "mgmt-1", "mgmt-2", "mgmt-3"}, names); err != nil || diff != "" {
		t.Errorf("the registered consumers, %v (-want +have):\n%s", err, diff)
	}
	after, err := s.Consumer(ctx, before.ID)
	if err != nil || !cmp.Equal(before, after) {
		t.Errorf("the consumer that was registered before: %+v, %v, want %+v", after, err, before)
	}
}

// TestEnsureConsumersOnlyReadsWithoutMissing checks that a replica starts while the database accepts no writes.
func TestEnsureConsumersOnlyReadsWithoutMissing(t *testing.T) {
	s, ctx := open(t), t.Context()
	must.Get(s.EnsureConsumers(ctx, []string{"mgmt-1"}))(t)
	readOnly := s.pool.Config()
	readOnly.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool := must.Get(pgxpool.NewWithConfig(ctx, readOnly))(t)
	defer pool.Close()
	replica := &Store{pool: pool}
	if created, err := replica.EnsureConsumers(ctx, []string{"mgmt-1"}); err != nil || len(created) > 0 {
		t.Errorf("without a missing consumer: %v, %v, want success", created, err)
	}
	if _, err := replica.EnsureConsumers(ctx, []string{"mgmt-1", "mgmt-2"}); !IsUnavailable(err) {
		t.Errorf("with a missing consumer: %v, want an error after which the replica tries again", err)
	}
}
