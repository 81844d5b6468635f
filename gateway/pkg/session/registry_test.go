package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// newRegistry returns a registry that follows nothing, with a clock.
func newRegistry(clock clocktest.Clock) *Registry {
	return NewRegistry(Options{Clock: clock, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
}

// TestStaleViewRefuses lets the last reads of both sources become old.
func TestStaleViewRefuses(t *testing.T) {
	clock := clocktest.New()
	r := newRegistry(clock)
	if r.Fresh() == nil {
		t.Error("a registry that has read nothing is fresh")
	}
	r.noteRead()
	if r.Fresh() == nil {
		t.Error("a registry without the clusters is fresh")
	}
	r.CaughtUp()
	if err := r.Fresh(); err != nil {
		t.Errorf("after both reads: %v", err)
	}
	clock.Step(MaxStaleness + time.Second)
	if err := r.Fresh(); apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), "Cluster Service") {
		t.Errorf("without a watch: %v", err)
	}
	if r.ReadyCosmos(t.Context()) == nil {
		t.Error("the process is ready although the feed was not read")
	}
}

// TestRestartedWatchForgetsMissingClusters restarts the watch: the session of a cluster that is not sent ends when the watch has caught up,
// and not before.
func TestRestartedWatchForgetsMissingClusters(t *testing.T) {
	clock := clocktest.New()
	r := newRegistry(clock)
	send := func(uid string) {
		r.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: uid, Status: &clusterservicev1.ClusterStatus{}}}})
	}
	r.Restarted()
	for _, cluster := range []string{"one", "two"} {
		send(cluster)
		setDocument(r, &database.AccessSessionDocument{SessionID: "session-of-" + cluster, ClusterUID: cluster, Mode: "read", State: database.AccessSessionRequested,
			RequestExpirationTime: clock.Now().Add(time.Minute), ElevationExpirationTime: clock.Now().Add(time.Hour)})
	}
	r.CaughtUp()
	r.Restarted()
	send("two")
	ended, _ := r.Get("session-of-one")
	if ended == nil {
		t.Fatal("the session ended before the watch has caught up")
	}
	r.CaughtUp()
	if open, reason := r.Get("session-of-one"); open != nil || reason != "the cluster does not exist" || context.Cause(ended.Context()) == nil {
		t.Errorf("the session is %v: %s", open, reason)
	}
	open, _ := r.Get("session-of-two")
	if open == nil {
		t.Fatal("the other session has ended")
	}
	r.mu.Lock()
	r.forget("session-of-two", r.entries["session-of-two"], "the test ends")
	r.mu.Unlock()
	var e *apierror.Error
	if cause := context.Cause(open.Context()); !errors.As(cause, &e) || e.Kind != apierror.PermissionDenied || !strings.Contains(e.Message, "the test ends") {
		t.Errorf("the cause is %v", cause)
	}
}

// TestOldCredentialsAreRemoved receives many credentials that have no session.
func TestOldCredentialsAreRemoved(t *testing.T) {
	clock := clocktest.New()
	r := newRegistry(clock)
	for i := range 10 * minRemove {
		r.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_BreakGlassCredential{BreakGlassCredential: &clusterservicev1.BreakGlassCredential{
			Uid: fmt.Sprint(i), CreateTime: timestamppb.New(clock.Now().Add(-2 * time.Hour)), Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE},
			Status: &clusterservicev1.BreakGlassCredentialStatus{State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED}}}})
	}
	if n := len(r.credentials); n > 2*minRemove {
		t.Errorf("%d credentials are kept", n)
	}
}
