package app_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/app"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/explanation"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// facts are what the store has of a cluster and its last operation, with what Cluster Service has, as they look after a
// time in which nothing more happens.
func (r *region) facts(key, operation database.Key, deadline, later time.Duration) *explanation.Facts {
	r.t.Helper()
	f := &explanation.Facts{Now: time.Now().Add(later), Asked: "demo", Matches: []string{key.ResourceID}}
	item, err := r.db.Clusters().Find(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	if item != nil && item.Removed == nil {
		d := item.Value
		f.Records = append(f.Records, explanation.Record{ResourceID: key.ResourceID, UID: d.UID, Generation: d.Generation,
			ProvisioningState: string(d.ProvisioningState), ActiveOperation: d.ActiveOperationID})
	}
	found, err := r.db.Operations().Get(r.t.Context(), operation)
	if err != nil {
		r.t.Fatal(err)
	}
	o := found.Value
	told := explanation.Operation{ID: o.OperationID, Request: string(o.Request), ResourceID: o.ResourceID, Status: string(o.Status), StartTime: o.StartTime, Deadline: o.StartTime.Add(deadline)}
	if o.EndTime != nil {
		told.EndTime = *o.EndTime
	}
	if o.Error != nil {
		told.Code, told.Message = o.Error.Code, o.Error.Message
	}
	f.Operations = append(f.Operations, told)
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	for _, c := range r.fleet.clusters {
		if strings.EqualFold(c.GetResourceId(), key.ResourceID) {
			f.Cluster = c
		}
	}
	return f
}

// refuse has Cluster Service answer every call with an error, or with none again.
func (r *region) refuse(err error) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.refuse = err
}

// startWithin runs a backend whose creates have a deadline, until the test ends.
func (r *region) startWithin(deadline time.Duration) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	db := r.cosmos.Open(r.t)
	go func() {
		defer close(done)
		_ = app.Work(ctx, process.New("backend", slog.New(slog.DiscardHandler)), db, r.connection, app.Options{
			Replica: "backend-0", Workers: 8, CascadeDeletions: 40, FeedIdle: 100 * time.Millisecond, LeaseDuration: time.Second,
			Timing: lifecycle.Timing{Grace: 20 * time.Millisecond, Coalesce: 50 * time.Millisecond, CreateDeadline: deadline},
		})
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

// TestExplanations has what the store says of operations explained.
func TestExplanations(t *testing.T) {
	t.Parallel()
	key := clusterKey(subscription, "demo")
	expect := func(t *testing.T, f *explanation.Facts, who explanation.Party, parts ...string) {
		t.Helper()
		answer := explanation.Of(f)
		text := strings.Join(strings.Fields(answer.Text()), " ")
		if got := answer.Findings[0].Who; got != who {
			t.Errorf("%s has to act, want %s:\n%s", got, who, answer.Text())
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("the answer does not say %q:\n%s", part, answer.Text())
			}
		}
	}
	t.Run("not at Cluster Service", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.refuse(status.Error(codes.Unavailable, "not now"))
		r.start("backend-0")
		operation := r.createCluster(key)
		expect(t, r.facts(key, operation, time.Hour, 10*time.Second), explanation.Service, "has been waiting to reach Cluster Service for 1", "Nobody has to act")
		expect(t, r.facts(key, operation, time.Hour, 8*time.Minute), explanation.SRE, "for 8 minutes", "An SRE has to act")
	})
	t.Run("refused by Cluster Service", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.refuse(apierror.ToGRPC(apierror.New(apierror.Invalid, "The host prefix leaves no room for pods."), "clusterservice.hcpmesh"))
		r.start("backend-0")
		operation := r.createCluster(key)
		r.ends(operation, hub.Failed)
		expect(t, r.facts(key, operation, time.Hour, time.Minute), explanation.Customer, "it never reached the fleet", "“The host prefix leaves no room for pods.”")
	})
	t.Run("expired, and the fleet went on", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.fleet.mu.Lock()
		r.fleet.frozen = true
		r.fleet.mu.Unlock()
		r.startWithin(300 * time.Millisecond)
		operation := r.createCluster(key)
		if got := r.ends(operation, hub.Failed); got.Error.Code != "DeadlineExceeded" {
			t.Fatalf("the operation ended with %+v", got.Error)
		}
		expect(t, r.facts(key, operation, time.Hour, 2*time.Hour), explanation.SRE, "is being created", "An SRE has to act")
		r.fleet.mu.Lock()
		r.fleet.frozen = false
		r.fleet.mu.Unlock()
		r.eventually("the cluster", func() string {
			if c := r.facts(key, operation, time.Hour, 0).Cluster; c.GetStatus().GetObservedGeneration() == 0 {
				return "is not ready"
			}
			return ""
		})
		expect(t, r.facts(key, operation, time.Hour, 2*time.Hour), explanation.Customer, "is ready now, but its last operation failed 2 hours ago", "(DeadlineExceeded)")
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.start("backend-0")
		r.ends(r.createCluster(key), hub.Succeeded)
		operation := r.change(key, database.DeleteRequest)
		r.ends(operation, hub.Succeeded)
		expect(t, r.facts(key, operation, time.Hour, time.Minute), explanation.Nobody, "was deleted", "Nobody has to act.")
	})
}
