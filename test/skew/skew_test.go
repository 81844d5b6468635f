package skew

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// TestRolloutAndRollback runs a region of the previous release on its data. It replaces the services one after the other with those of the
// checkout, in the order of a rollout, then back in the opposite order, and forward again. Meanwhile customers read, change, create and delete
// clusters, and an SRE acts on one. After each replacement every one of them must complete a round with the mixed releases.
func TestRolloutAndRollback(t *testing.T) {
	nightly.Only(t)
	transcript.Outcome(t, transcript.PreviousRelease)
	ctx := t.Context()
	r := newRegion(t)
	captured := capturedViews(t, r)
	r.build(t, ctx)
	r.restore(t, ctx)
	r.start(t, ctx)
	c := newCustomer(t, ctx, r.Endpoints())
	requireViews(t, ctx, c, captured)
	awaitCaptured(t, ctx, c)
	// The change is written by the previous release and later read by the new one, and so on.
	must.Get(c.Put(ctx, c.NodePoolID(upgrading, "workers"), c.NodePoolBody(1)))(t)

	for _, direction := range []string{"rollout", "rollback", "second rollout"} {
		t.Run(direction, func(t *testing.T) {
			quick := startActors(t, ctx, reader(c, captured), changer(c, upgrading), sre(newEngineer(t, ctx, r), c.ClusterID(creating)))
			slow := startActors(t, ctx, creator(c))
			back := direction == "rollback"
			steps := slices.Clone(rollout)
			if back {
				slices.Reverse(steps)
			}
			for _, s := range steps {
				r.replace(t, ctx, s, back)
				quick.awaitRounds(t, ctx, direction+" of "+s.group)
			}
			slow.awaitRounds(t, ctx, direction)
			quick.end(t)
			slow.end(t)
			for _, a := range append(quick.all, slow.all...) {
				transcript.Log(t, transcript.PreviousRelease, "%s: %d rounds", a.name, a.completed)
			}
			requireViews(t, ctx, c, captured)
			r.awaitConsistent(t, ctx)
			r.requireAudit(t, ctx)
		})
		if t.Failed() {
			return
		}
	}
	removeFleet(t, ctx, c)
	r.awaitConsistent(t, ctx)
}

// replace replaces the processes of a step: with the programs of the previous release if back is set, otherwise with those of the checkout. A
// rollout migrates a database while the service of the previous release runs. A rollback keeps the schema.
func (r *region) replace(t *testing.T, ctx context.Context, s step, back bool) {
	t.Helper()
	dir := ""
	if back {
		dir = r.previous
	}
	for _, process := range s.processes {
		if s.migrates && !back {
			must.Do(t, r.Migrate(ctx, process, dir))
		}
		if err := r.ReplaceProgram(ctx, process, dir); err != nil {
			t.Fatalf("replacing %s: %v", process, err)
		}
		for _, status := range r.Status().Processes {
			if status.Name == process && strings.HasPrefix(status.Program, r.previous) != back {
				t.Fatalf("%s runs %s", process, status.Program)
			}
		}
	}
}

// requireAudit checks that the audit records of both releases are complete: each release continues the chains of the other one, and admin has found nothing.
func (r *region) requireAudit(t *testing.T, ctx context.Context) {
	t.Helper()
	folders := local.AuditFoldersOf(r.config.StateDir)
	log := must.Get(sink.OpenFile(folders.Sink))(t)
	witness := must.Get(sink.OpenFileWitness(folders.Witness))(t)
	keys := must.Get(audit.LoadKeys(folders.Keys))(t)
	// A service that the region does not have has no queue.
	queues := slices.DeleteFunc(folders.Queues, func(queue string) bool { return slices.Contains(r.absent, filepath.Base(queue)) })
	report := must.Get(verify.Verify(ctx, verify.Input{Log: log, Witness: witness, Keys: keys, Queues: queues}))(t)
	for _, finding := range report.Findings {
		t.Errorf("the audit has the finding %+v", finding)
	}
	if len(report.Chains) == 0 {
		t.Error("the audit has no chains")
	}
	// Admin of the previous release checks no chains.
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Endpoints().Ops["admin"]+"/metrics", http.NoBody))(t)
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	metrics := must.Get(io.ReadAll(response.Body))(t)
	for _, found := range regexp.MustCompile(`(?m)^admin_audit_findings_total\S* [^0].*$`).FindAll(metrics, -1) {
		t.Errorf("admin has found %s", found)
	}
}

// newEngineer returns a client of an engineer with an elevation.
func newEngineer(t *testing.T, ctx context.Context, r *region) *adminclient.Client {
	t.Helper()
	engineer := must.Get(customer.NewEngineer(r.Endpoints(), "oncall"))(t)
	t.Cleanup(engineer.CloseIdleConnections)
	must.Get(engineer.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "testing a rollout", Ticket: "INC-50", Duration: "1h"}))(t)
	return engineer
}
