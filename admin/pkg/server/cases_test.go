package server_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server/servertest"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// csr is the certificate signing request of the cases. No log may contain it.
const csr = "-----BEGIN CERTIFICATE REQUEST-----"

// TestCases runs all cases of testdata/cases and then checks the run as a whole: each route succeeded and was rejected for each
// lower role, each response matches the OpenAPI document, and the audit is complete.
func TestCases(t *testing.T) {
	t.Parallel()
	suite := httpcase.Suite{Dir: "../../testdata"}
	cases := must.Get(suite.Load())(t)
	h := newPopulated(t)
	h.observe(t)
	recorded := h.record(t, 1, "session", true)
	record := servertest.New(h.client.Transport)
	target := httpcase.Target{
		BaseURL: h.url, Client: &http.Client{Transport: record}, Timeout: time.Minute, ProcessOperations: h.execute,
		Headers: [][2]string{{"Content-Type", "application/json"}},
		Variables: map[string]string{
			"domain": "example.com", "cluster": uid, "subscription": subscription, "name": "Alpha", "cluster-id": clusterID, "pool": "pool", "deleting": uid, "operation": "op-of-alpha",
			"credential": "sre", "orphan": "of-another", "drifted": drifted, "upgrade": "upgrade", "version": "4.20.16", "gate": "upgradeable", "csr": csr, "outcome": "Succeeded",
			"recording": recorded.RecordingID,
		},
	}
	for _, c := range cases {
		if err := suite.Run(t.Context(), target, c); err != nil {
			t.Errorf("%s: %s: %v", c.Name, c.Reason, err)
		}
	}
	t.Run("every route", func(t *testing.T) { record.EveryRoute(t) })
	t.Run("the document", record.EveryAnswer)
	t.Run("secrets", func(t *testing.T) { record.NoAnswerShows(t, map[string]string{"a secret": secret}) })
	t.Run("the audit", func(t *testing.T) {
		servertest.EveryMutation(t, h.log.String(), h.audit(t), map[string]string{"a secret": secret, "a token": "Bearer", "what was sent": csr})
	})
	t.Run("the audit chain", func(t *testing.T) {
		everyRequestIsRecorded(t, h.trail, map[string]string{"a secret": secret, "what was sent": csr})
	})
}

// observe writes what monitor writes about the cluster of the cases, whose name cannot be resolved.
func (h *harness) observe(t *testing.T) {
	t.Helper()
	group, now := int(partition.Of(uid, database.MonitorGroups)), time.Now().UTC()
	// The report is current during the whole test.
	must.Do(t, h.db.WriteGroupReport(t.Context(), group, database.GroupReport{Replica: "monitor-0", Time: now.Add(time.Hour)}))
	concern := adminv1.HealthConcern{Kind: "name_unresolved", Since: now, Fault: "service", Summary: "its name cannot be resolved", Evidence: "no such host", Help: "Check the zone."}
	must.Do(t, h.db.WriteHealthRecord(t.Context(), group, uid, false, func(r *database.HealthRecord) {
		r.Health = adminv1.Health{API: adminv1.HealthUnavailable, Since: now, Concerns: []adminv1.HealthConcern{concern}}
		r.Append(now, adminv1.JournalEntry{Time: now, Event: adminv1.JournalAPI, To: adminv1.HealthUnavailable, Since: now},
			adminv1.JournalEntry{Time: now, Event: adminv1.JournalConcernBegan, Kind: concern.Kind, Fault: concern.Fault, Since: now, Evidence: concern.Evidence})
	}))
}

// execute simulates the backend: all accepted operations succeed.
func (h *harness) execute(ctx context.Context, _ string) error {
	records, _, err := h.db.AdminRecords(ctx, database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, ActiveOnly: true}, "", 100)
	if err != nil {
		return err
	}
	for _, r := range records {
		r.Operation.Value.End(database.AdminSucceeded, nil, time.Now().UTC())
		batch := h.db.NewBatch(database.AdminPartition)
		database.Replace(batch, r.Operation)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// audit returns all audit records.
func (h *harness) audit(t *testing.T) []adminv1.AuditEntry {
	t.Helper()
	var all []adminv1.AuditEntry
	for token := ""; ; {
		page, _ := read[adminv1.AuditList](t, h, "/audit?pageSize=50&pageToken="+url.QueryEscape(token))
		all = append(all, page.Items...)
		if token = page.NextPageToken; token == "" {
			return all
		}
	}
}
