package app_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// audited records the log of the Cluster Services that start afterwards, and returns a function that returns the audit records of
// an action.
func (r *region) audited(t *testing.T) func(action string) []map[string]any {
	t.Helper()
	log := &auditLog{}
	r.log = log.logger()
	return func(action string) []map[string]any {
		t.Helper()
		var found []map[string]any
		for line := range strings.Lines(log.String()) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("decoding a log record: %v: %s", err, line)
			}
			if entry["msg"] == "audit" && entry["action"] == action {
				found = append(found, entry)
			}
		}
		return found
	}
}

// requireActor expects one record about a cluster with the actor, and returns it.
func requireActor(t *testing.T, lines []map[string]any, clusterUID string, actor *csv1.Actor) map[string]any {
	t.Helper()
	if len(lines) != 1 {
		t.Fatalf("%d audit records, want 1: %v", len(lines), lines)
	}
	for field, want := range map[string]string{"cluster_uid": clusterUID, "actor": actor.GetName(), "reason": actor.GetReason(), "ticket": actor.GetTicket()} {
		if lines[0][field] != want {
			t.Errorf("%s of the audit record is %v, want %q", field, lines[0][field], want)
		}
	}
	return lines[0]
}

// TestRetryOfAzureSteps makes Azure request long pauses during creation and deletion. The retry of an SRE tries the
// steps at once.
func TestRetryOfAzureSteps(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	lines := r.audited(t)
	throttle := func(method, path string) {
		t.Helper()
		must.Get(r.azure.Faults().Add(faults.Rule{Methods: []string{method}, Path: path, Status: 429, RetryAfterMS: 300_000, Count: 1}))(t)
	}
	throttle("PUT", "/dnsZones/aro.")
	throttle("DELETE", "/dnsZones/aro.")
	service := r.start(nil)
	ctx := t.Context()
	request := r.azureRequest("c")
	service.applyCluster(t, request, func(c *csv1.Cluster) bool {
		return strings.HasPrefix(progressOf(c, "azure"), "RetryingDnsZone: Attempt 1 failed")
	})
	retry := &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("the subscription's limit was raised")}
	// The number of the other pending steps depends on timing.
	done, err := service.RetryCluster(ctx, retry)
	if err != nil || !regexp.MustCompile(` (1 step in Azure is|[2-9] steps in Azure are) retried at once\.$`).MatchString(done.GetEffect()) {
		t.Fatalf("effect of the retry is %q: %v", done.GetEffect(), err)
	}
	service.awaitCluster(t, request.Uid, clusterReady(1))
	// The repeated retry has no effect.
	must.Get(service.RetryCluster(ctx, retry))(t)
	if line := requireActor(t, lines("RetryCluster"), request.Uid, retry.Actor); line["effect"] != done.GetEffect() {
		t.Errorf("audit record is %v", line)
	}

	service.remove(t, request.Uid)
	service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		step := stepOf(c.GetStatus().GetDeletion(), "azure/dns-zone")
		return step.GetAttempts() == 1 && strings.Contains(step.GetLastError(), "429")
	})
	again := &csv1.RetryDeletionRequest{ClusterUid: request.Uid, Actor: alice("the limit is there now")}
	retried, err := service.RetryDeletion(ctx, again)
	if err != nil || strings.Join(retried.GetSteps(), " ") != "azure/dns-zone" {
		t.Fatalf("retried steps are %v: %v", retried.GetSteps(), err)
	}
	deleted := service.awaitCluster(t, request.Uid, clusterDeleted)
	requireActor(t, lines("retry-deletion"), request.Uid, again.Actor)
	if by := stepOf(deleted.GetStatus().GetDeletion(), "azure/dns-zone").GetActions(); len(by) != 1 || by[0].GetActor().GetName() != again.Actor.GetName() {
		t.Errorf("actions recorded at the step: %v", by)
	}
	r.nothingInAzure(t, deleted)
}

// TestForceOfAzureSteps blocks a role check during creation and a removal during deletion. An SRE can force each step
// once it is stuck. The audit records who and why, forced steps are still tried, and what may be left behind is
// recorded.
func TestForceOfAzureSteps(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	lines := r.audited(t)
	ctx := t.Context()
	r.operatorWithoutRole(t)
	service := r.start(nil)
	request := r.azureRequest("c")
	must.Get(service.ApplyCluster(ctx, request))(t)
	// Only the role check is pending, and it exceeds its limit.
	waiting := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return strings.HasPrefix(progressOf(c, "azure"), "RetryingOperatorRoles: ") && c.GetStatus().GetApiUrl() != ""
	})
	if waiting.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING {
		t.Fatalf("the cluster is %v", waiting.GetStatus().GetPhase())
	}
	for _, want := range []string{"the customer must act", "operator ingress", "0336e1d3-7a87-462b-b6db-342b63f7802c", "subnets/sub"} {
		if said := progressOf(waiting, "azure"); !strings.Contains(said, want) {
			t.Errorf("%q does not name %q", said, want)
		}
	}
	force := func(step string) *csv1.ForceClusterStepRequest {
		return &csv1.ForceClusterStepRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Step: step, Actor: alice("the customer's role is their own")}
	}
	for name, tc := range map[string]struct {
		request *csv1.ForceClusterStepRequest
		code    codes.Code
		says    string
	}{
		"nobody":  {&csv1.ForceClusterStepRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Step: "azure/operator-roles"}, codes.InvalidArgument, "actor"},
		"nothing": {force(""), codes.InvalidArgument, "step"},
		"unknown": {force("azure/moon"), codes.NotFound, `There is no step "azure/moon". The cluster waits for: `},
	} {
		if _, err := service.ForceClusterStep(ctx, tc.request); status.Code(err) != tc.code || !strings.Contains(errorText(err), tc.says) {
			t.Errorf("%s: got %v, want %s with %q", name, err, tc.code, tc.says)
		}
	}
	forced := force("azure/operator-roles")
	if _, err := service.ForceClusterStep(ctx, forced); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("force of a step that is not stuck: %v", err)
	}
	r.clock.advance(beyondLimits)
	must.Get(service.ForceClusterStep(ctx, forced))(t)
	ready := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return clusterReady(1)(c) && strings.HasPrefix(progressOf(c, "azure"), "Ready: ")
	})
	if said := progressOf(ready, "azure"); !strings.Contains(said, "12 of 13 Azure resources") || !strings.Contains(said, "alice@example.com let the creation continue without the check of the operators' roles (the customer's role is their own)") {
		t.Errorf("progress is %q", said)
	}
	line := requireActor(t, lines("ForceClusterStep"), request.Uid, forced.Actor)
	if effect, _ := line["effect"].(string); !strings.Contains(effect, "azure/operator-roles") {
		t.Errorf("audit record is %v", line)
	}
	if _, err := service.ForceClusterStep(ctx, forced); err != nil || len(lines("ForceClusterStep")) != 1 {
		t.Errorf("repeated force: %v, %v", err, lines("ForceClusterStep"))
	}
	if _, err := service.ForceClusterStep(ctx, force("azure/resource-group")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("force of a completed step: %v", err)
	}

	// The parent zone rejects the removal of the delegation.
	must.Get(r.azure.Faults().Add(faults.Rule{Methods: []string{"DELETE"}, Path: "/NS/aro.", Status: 403, Code: "AuthorizationFailed"}))(t)
	service.remove(t, request.Uid)
	service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return stepOf(c.GetStatus().GetDeletion(), "azure/dns-delegation").GetAttempts() > 0
	})
	r.clock.advance(beyondLimits)
	service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return stepOf(c.GetStatus().GetDeletion(), "azure/dns-delegation").GetStuck()
	})
	if _, err := service.ForceClusterStep(ctx, force("azure/dns-delegation")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("force of a deletion step as a creation step: %v", err)
	}
	removal := &csv1.ForceDeletionStepRequest{ClusterUid: request.Uid, Step: "azure/dns-delegation", Actor: alice("the zone is somebody else's now")}
	must.Get(service.ForceDeletionStep(ctx, removal))(t)
	deleted := service.awaitCluster(t, request.Uid, clusterDeleted)
	requireActor(t, lines("force-deletion-step"), request.Uid, removal.Actor)
	step := stepOf(deleted.GetStatus().GetDeletion(), "azure/dns-delegation")
	if step.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_FORCED || !strings.Contains(step.GetForce().GetLeftBehind(), "the delegation of the cluster's DNS zone") {
		t.Errorf("the step is %v", step)
	}
	// Only the resource of the forced step and the customer's own resources remain.
	for _, left := range r.inAzure(deleted) {
		if !strings.HasSuffix(left, "/NS/aro.PREFIX") && !strings.HasSuffix(left, "/cp-ingress") && !strings.HasSuffix(left, "/cust-rg") {
			t.Errorf("left in Azure: %s", left)
		}
	}
}

// errorText returns the text of an error with the fields that its details name.
func errorText(err error) string {
	text := []string{status.Convert(err).Message()}
	for _, detail := range status.Convert(err).Details() {
		content, _ := json.Marshal(detail)
		text = append(text, string(content))
	}
	return strings.Join(text, " ")
}
