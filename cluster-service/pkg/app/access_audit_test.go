package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// auditLog records the lines that are written to it.
type auditLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *auditLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *auditLog) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// String returns everything that was written.
func (l *auditLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

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
