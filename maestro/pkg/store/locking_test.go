package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

var database *postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &database)) }

func open(t *testing.T) *Store {
	t.Helper()
	url := database.Migrated(t, Migrations())
	// The tests run with the rights that the server has in a region.
	s := must.Get(Open(t.Context(), postgrestest.RuntimeURL(t, url), postgres.Authentication{}, 20, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(s.Close)
	must.Do(t, s.CheckMigrated(t.Context()))
	return s
}

// TestConcurrentTransactionsDoNotDeadlock updates resources, records deliveries as sent, stores statuses and compares lists of
// works, all for the same resources at once. If transactions locked in different orders, PostgreSQL would fail one of them, and
// a source would receive an internal error.
func TestConcurrentTransactionsDoNotDeadlock(t *testing.T) {
	s, ctx := open(t), t.Context()
	const consumer, source, count, rounds = "mgmt-1", "cluster-service", 40, 60
	must.Get(s.CreateConsumer(ctx, consumer, nil))(t)
	bundle := func(i, round int) *resource.Resource {
		spec := fmt.Sprintf(`{"manifests":[{"round":%d}]}`, round)
		return &resource.Resource{ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Source: source, Consumer: consumer, Spec: json.RawMessage(spec)}
	}
	for i := range count {
		must.Get(s.Create(ctx, bundle(i, 0)))(t)
	}
	reports := func(round int, deleted bool) []*resource.Status {
		var all []*resource.Status
		for i := range count {
			all = append(all, &resource.Status{ResourceID: bundle(i, 0).ID, Consumer: consumer, Version: int64(1 + round), Agent: "agent",
				Sequence: strconv.Itoa(round), Hash: strconv.Itoa(round), Body: []byte(`{}`), Deleted: deleted})
		}
		return all
	}

	var clients sync.WaitGroup
	each := func(what string, do func(round int) error) {
		clients.Go(func() {
			for round := range rounds {
				if err := do(round); err != nil {
					t.Errorf("%s, round %d: %v", what, round, err)
					return
				}
			}
		})
	}
	each("update", func(round int) error {
		for i := range count {
			if _, err := s.Update(ctx, bundle(count-1-i, round)); err != nil {
				return err
			}
		}
		return nil
	})
	each("status", func(round int) error {
		_, err := s.ApplyStatuses(ctx, consumer, reports(round, false))
		return err
	})
	// The deletion was not requested, so each of these statuses orders a delivery.
	each("unrequested deletion", func(round int) error {
		_, err := s.ApplyStatuses(ctx, consumer, reports(round, true))
		return err
	})
	each("list", func(round int) error {
		held := map[string]int64{}
		for i := range count {
			if (i+round)%3 > 0 {
				held[bundle(i, 0).ID] = int64(1 + round)
			}
		}
		_, err := s.CompareHeld(ctx, consumer, held, round%5 == 0)
		return err
	})
	each("send", func(int) error { return send(ctx, s, consumer) })
	clients.Wait()
}

// TestUnrequestedDeletionWaitsForComparison reports a deletion that was not requested while another transaction holds the
// resource as CompareHeld does. The delivery of the resource must not appear before that transaction ends:
// CompareHeld would delete it without having locked it in order, and could deadlock with Sent.
func TestUnrequestedDeletionWaitsForComparison(t *testing.T) {
	s, ctx := open(t), t.Context()
	const consumer = "mgmt-1"
	must.Get(s.CreateConsumer(ctx, consumer, nil))(t)
	r := &resource.Resource{ID: "00000000-0000-0000-0000-000000000001", Source: "cluster-service", Consumer: consumer, Spec: json.RawMessage(`{}`)}
	version := must.Get(s.Create(ctx, r))(t)
	status := func(deleted bool) []*resource.Status {
		return []*resource.Status{{ResourceID: r.ID, Consumer: consumer, Version: version, Agent: "agent", Sequence: "1", Hash: "1",
			Body: []byte(`{}`), Deleted: deleted}}
	}
	must.Get(s.ApplyStatuses(ctx, consumer, status(false)))(t)

	comparison := must.Get(s.pool.Begin(ctx))(t)
	defer comparison.Rollback(context.WithoutCancel(ctx))
	must.Get(lockAll(ctx, comparison, consumer))(t)
	stored := make(chan error, 1)
	go func() {
		_, err := s.ApplyStatuses(ctx, consumer, status(true))
		stored <- err
	}()
	eventually.Soon(t, "the status waits for the comparison", func() error {
		select {
		case err := <-stored:
			t.Fatalf("the status was stored while the comparison held the lock (error %v)", err)
		default:
		}
		var waiting int
		if err := s.pool.QueryRow(ctx, `select count(*) from pg_stat_activity
			where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0`).Scan(&waiting); err != nil {
			return err
		}
		if waiting == 0 {
			return errors.New("no session waits for a lock")
		}
		return nil
	})

	must.Do(t, comparison.Commit(ctx))
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
}

// send records all due deliveries as sent.
func send(ctx context.Context, s *Store, consumer string) error {
	var sent []*Delivery
	for _, lane := range []Lane{Resync, NewWork} {
		due, err := s.Due(ctx, consumer, lane, 100)
		if err != nil {
			return err
		}
		sent = append(sent, due...)
	}
	return s.Sent(ctx, sent, func(int) time.Duration { return time.Millisecond })
}
