package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// cordon returns a call that cordons a shard, or ends that, with the intent of an engineer.
func (r *region) cordon(shard string, cordoned bool) (context.Context, *csv1.UpdateProvisionShardRequest) {
	r.t.Helper()
	request := &csv1.UpdateProvisionShardRequest{Name: shard, Cordoned: &cordoned, Actor: &csv1.Actor{Name: "mallory", Reason: "none"}}
	signed := r.admin.Call(r.t, csv1.ClusterService_UpdateProvisionShard_FullMethodName, request, func(i *intent.Intent) {
		i.OperationID, i.Action, i.Target = "operation of "+shard, "shards.cordon", intent.Target{Kind: "provisionShard", ID: shard}
	})
	return intent.AppendToOutgoingContext(r.t.Context(), signed), request
}

// TestCallsOfEngineersAreRecorded makes a call that succeeds, repeats it, and makes one that fails and one that is refused. The
// person is that of the intent, not that of the request.
func TestCallsOfEngineersAreRecorded(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	ctx, request := r.cordon("mgmt-1", true)
	must.Get(service.UpdateProvisionShard(ctx, request))(t)
	_, err := service.UpdateProvisionShard(ctx, request)
	requireRefused(t, err, codes.Aborted, clusterservice.ReasonCallDone)
	ctx, unknown := r.cordon("mgmt-9", true)
	if _, err := service.UpdateProvisionShard(ctx, unknown); apierror.KindOf(apierror.FromGRPC(err)) != apierror.NotFound {
		t.Fatal(err)
	}
	if _, err := service.UpdateProvisionShard(t.Context(), request); err == nil {
		t.Fatal("a call without an intent had an effect")
	}
	// Calls of customers and reads have no records.
	must.Get(service.ApplyCluster(t.Context(), applyRequest("c", 1)))(t)

	want := func(shard, outcome, code string) audit.Record {
		return audit.Record{
			Peer: string(mesh.Backend), Person: audit.Person{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "break-glass", Elevation: "elevation"},
			Action: "shards.cordon", Object: audit.Object{Kind: "provisionShard", ID: shard}, Reason: "it is stuck", Ticket: "INC-1",
			Operation: "operation of " + shard, Outcome: outcome, Code: code,
		}
	}
	wanted := []audit.Record{
		want("mgmt-1", audit.Started, ""), want("mgmt-1", audit.Succeeded, ""), want("mgmt-1", audit.Started, ""), want("mgmt-1", audit.Succeeded, ""),
		want("mgmt-9", audit.Started, ""), want("mgmt-9", audit.Failed, apierror.NotFound.ARMCode()),
		{Peer: string(mesh.Backend), Action: "UpdateProvisionShard", Outcome: audit.Refused, Code: apierror.PermissionDenied.ARMCode()},
	}
	if diff := cmp.Diff(wanted, r.records.Records(t)); diff != "" {
		t.Error(diff)
	}
	r.records.Verify(t)
}

// TestCallWaitsForTheAudit fills the audit queue: a call of an engineer has no effect, and customers are not affected.
func TestCallWaitsForTheAudit(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	r.records = audittest.New(t, "cluster-service", writer.MinBytes)
	r.records.SinkAway(true)
	for r.records.Append(t.Context(), audit.Record{Action: "fill"}) == nil {
		continue
	}
	service := r.start(nil)
	ctx, request := r.cordon("mgmt-1", true)
	_, err := service.UpdateProvisionShard(ctx, request)
	requireRefused(t, err, codes.Unavailable, writer.ReasonUnavailable)
	shard, err := r.as(mesh.Admin, service).GetProvisionShard(t.Context(), &csv1.GetProvisionShardRequest{Name: "mgmt-1"})
	if err != nil || shard.GetProvisionShard().GetCordoned() {
		t.Errorf("a call without a record had an effect: %v, %v", shard, err)
	}
	if _, err := service.ApplyCluster(t.Context(), applyRequest("c", 1)); err != nil {
		t.Error(err)
	}
	_, err = service.UpdateProvisionShard(t.Context(), request)
	requireRefused(t, err, codes.PermissionDenied, mesh.ReasonNotAuthorized)

	r.records.SinkAway(false)
	untilDone(t, func(context.Context) error { _, err := service.UpdateProvisionShard(ctx, request); return err })
	r.records.Verify(t)
}

// TestEmergencyIsRecorded requests a credential with an elevation that nobody approved. The records of the call, of the request and of
// the certificate are marked, and name the elevation.
func TestEmergencyIsRecorded(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	request := credentialRequest(t, cluster, sre)
	signed := r.admin.Call(t, csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName, request, func(i *intent.Intent) { i.Elevation.Emergency = true })
	must.Get(service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), signed), request))(t)
	service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
	untilDone(t, func(context.Context) error {
		missing := map[string]bool{"test": true, "credentials.requested": true, "credentials.issued": true}
		for _, record := range r.records.Records(t) {
			if record.Emergency && record.Person.Elevation == "elevation" {
				delete(missing, record.Action)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no marked record of %v", missing)
		}
		return nil
	})
	r.records.Verify(t)
}

// TestAccessIsInTheAuditChain requests and uses the credential of a customer. The events are stored although no engineer asked for
// them, and those that happen while the audit queue is full are stored when it has space.
func TestAccessIsInTheAuditChain(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	r.records = audittest.New(t, "cluster-service", writer.MinBytes)
	r.records.SinkAway(true)
	for r.records.Append(t.Context(), audit.Record{Action: "fill"}) == nil {
		continue
	}
	r.play()
	service := r.start(nil)
	cluster, _ := service.createReady(t, "c")
	request, credential := service.issue(t, cluster, customer)
	issued := credential.GetStatus()
	now := time.Now().UTC().Truncate(time.Second)
	unknown := strings.Repeat("0a", 32)
	r.report(hostedreport.CredentialUse{Fingerprint: issued.GetCertificateFingerprint(), User: "system:customer-break-glass:ada", First: now, Last: now},
		hostedreport.CredentialUse{Fingerprint: unknown, User: "system:sre-break-glass:eve", First: now, Last: now})
	r.audit.awaitOne(t, "credentials.used", request.Uid)
	r.audit.awaitOne(t, "credentials.used", unknown)
	r.records.SinkAway(false)

	event := func(peer, action string) audit.Record {
		return audit.Record{Peer: peer, Person: audit.Person{Name: request.Spec.Requester}, Action: action, Reason: request.Spec.Reason, Outcome: audit.Succeeded,
			Object: audit.Object{Kind: "credential", ID: request.Uid, ResourceID: cluster.ResourceId, Cluster: cluster.Uid}, Operation: request.Uid}
	}
	want := map[audit.Record]bool{
		event(string(mesh.Backend), "credentials.requested"): true, event("", "credentials.issued"): true, event("", "credentials.used"): true,
		{Person: audit.Person{Name: "system:sre-break-glass:eve"}, Action: "credentials.used", Outcome: audit.Succeeded,
			Object: audit.Object{Kind: "certificate", ID: unknown, ResourceID: cluster.ResourceId, Cluster: cluster.Uid}}: true,
	}
	untilDone(t, func(ctx context.Context) error {
		got := map[audit.Record]bool{}
		for _, record := range r.records.Exported(t) {
			if record.Action != "fill" {
				got[record] = true
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	r.records.Verify(t)
}

// auditLog is a log with audit records.
type auditLog struct{ logtest.Log }

func (l *auditLog) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// of returns the audit records of an action that have about as the value of a field.
func (l *auditLog) of(t *testing.T, action, about string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(l.String()) {
		var record map[string]any
		must.Do(t, json.Unmarshal([]byte(line), &record))
		for _, value := range record {
			if value == about && record["action"] == action {
				if record["record"] != "audit" || record["msg"] != "audit" {
					t.Errorf("the record is not marked as an audit record: %s", line)
				}
				found = append(found, record)
				break
			}
		}
	}
	return found
}

// awaitOne waits for the first record of an action about a subject and expects that there is only one. Audit records are
// written before what the tests wait for next.
func (l *auditLog) awaitOne(t *testing.T, action, about string) map[string]any {
	t.Helper()
	untilDone(t, func(context.Context) error {
		if n := len(l.of(t, action, about)); n != 1 {
			return fmt.Errorf("%d records of %s about %s:\n%s", n, action, about, l)
		}
		return nil
	})
	return l.of(t, action, about)[0]
}

// report makes HyperShift report these uses.
func (r *region) report(uses ...hostedreport.CredentialUse) {
	r.t.Helper()
	report := hostedreport.CredentialReport{}
	for _, u := range uses {
		if !report.Note(u) {
			r.t.Fatalf("malformed use %+v", u)
		}
	}
	must.Do(r.t, r.hypershift.ReportUses(report))
	r.maestro.Touch()
}

// TestUseIsAudited reports uses of certificates from a management cluster and checks the audit records: who, why and
// until when.
func TestUseIsAudited(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, _ := service.createReady(t, "c")
	request, credential := service.issue(t, cluster, sre)
	issued := credential.GetStatus()
	fingerprint := issued.GetCertificateFingerprint()
	if len(fingerprint) != 64 {
		t.Fatalf("fingerprint of the certificate is %q", fingerprint)
	}
	if issued.GetUse() != nil {
		t.Errorf("an unused credential shows the use %v", issued.GetUse())
	}
	who := func(record map[string]any) {
		t.Helper()
		for field, want := range map[string]any{"actor": request.Spec.Requester, "reason": request.Spec.Reason, "class": "sre-break-glass",
			"cluster_uid": cluster.Uid, "resource_id": cluster.ResourceId, "credential_uid": request.Uid} {
			if record[field] != want {
				t.Errorf("%s: %s is %v, want %v", record["action"], field, record[field], want)
			}
		}
		if action := record["action"]; action != "credentials.requested" && (record["fingerprint"] != fingerprint ||
			record["until"] != issued.GetExpirationTime().AsTime().Format(time.RFC3339)) {
			t.Errorf("%s of %v until %v", action, record["fingerprint"], record["until"])
		}
	}
	who(r.audit.awaitOne(t, "credentials.requested", request.Uid))
	who(r.audit.awaitOne(t, "credentials.issued", request.Uid))

	const user = sreName
	first := time.Now().UTC().Truncate(time.Second)
	use := hostedreport.CredentialUse{Fingerprint: fingerprint, User: user, First: first, Last: first, Addresses: []string{"10.0.0.1"}, Request: "list pods"}
	r.report(use)
	used := r.audit.awaitOne(t, "credentials.used", request.Uid)
	who(used)
	if used["outcome"] != "known" || used["user"] != user || used["first_request"] != "list pods" || fmt.Sprint(used["addresses"]) != "[10.0.0.1]" || used["level"] != "INFO" {
		t.Errorf("the use is recorded as %v", used)
	}
	shown, err := service.GetBreakGlassCredential(ctx, &csv1.GetBreakGlassCredentialRequest{Uid: request.Uid})
	if err != nil || !shown.GetStatus().GetUse().GetFirstTime().AsTime().Equal(first) || shown.GetStatus().GetUse().GetFirstRequest() != "list pods" {
		t.Errorf("the credential shows the use %v, %v", shown.GetStatus().GetUse(), err)
	}

	// Another Cluster Service receives the same report. It does not count as another use.
	service.stop()
	service = r.start(nil)
	use.Last, use.Addresses = first.Add(time.Hour), []string{"10.0.0.1", "10.0.0.2"}
	r.report(use)
	again := r.audit.awaitOne(t, "credentials.usedAgain", request.Uid)
	who(again)
	if fmt.Sprint(again["addresses"]) != "[10.0.0.1 10.0.0.2]" {
		t.Errorf("the use is recorded as %v", again)
	}
	r.audit.awaitOne(t, "credentials.used", request.Uid)

	// A certificate without a credential is not attributed to anybody.
	unknownUse := use
	unknownUse.Fingerprint, unknownUse.User = strings.Repeat("0f", 32), "system:customer-break-glass:system-admin"
	r.report(use, unknownUse)
	unknown := r.audit.awaitOne(t, "credentials.used", unknownUse.Fingerprint)
	if unknown["outcome"] != "unknown" || unknown["level"] != "ERROR" || unknown["class"] != "customer-break-glass" || unknown["cluster_uid"] != cluster.Uid {
		t.Errorf("the use is recorded as %v", unknown)
	}
	if unknown["actor"] != nil || unknown["credential_uid"] != nil {
		t.Errorf("an unknown certificate is attributed: %v", unknown)
	}
	if err := service.measures(1, "cluster_service_break_glass_uses_total", "customer-break-glass", "unknown"); err != nil {
		t.Error(err)
	}

	// A revoked certificate that the API server still accepts is reported, too.
	revoke := revokeRequest(cluster, sre)
	must.Get(service.RevokeBreakGlassCredentials(ctx, revoke))(t)
	service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	who(r.audit.awaitOne(t, "credentials.revoked", request.Uid))
	if record := r.audit.awaitOne(t, "revocations.succeeded", revoke.Uid); record["actor"] != revoke.Requester || record["reason"] != revoke.Reason {
		t.Errorf("the revocation is recorded as %v", record)
	}
	use.Last, use.Addresses = time.Now().Add(2*time.Hour), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	r.report(use, unknownUse)
	untilDone(t, func(context.Context) error {
		return service.measures(1, "cluster_service_break_glass_uses_total", "sre-break-glass", "ended")
	})

	for _, never := range []string{"BEGIN", "PRIVATE", "Bearer", "kubeconfig", "MII"} {
		if strings.Contains(r.audit.String(), never) {
			t.Errorf("the audit log contains %q:\n%s", never, &r.audit)
		}
	}
}
