package e2e

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// awaitAudit waits until the sink of the region has records that satisfy check, and verifies all chains meanwhile. check receives the
// records of each service.
func awaitAudit(t *testing.T, condition string, check func(records map[string][]audit.Record) error) {
	t.Helper()
	folders := local.AuditFoldersOf(filepath.Dir(region.LogDir()))
	eventually.Soon(t, condition, func() error {
		log, err := sink.OpenFile(folders.Sink)
		if err != nil {
			return err
		}
		witness, err := sink.OpenFileWitness(folders.Witness)
		if err != nil {
			return err
		}
		keys, err := audit.LoadKeys(folders.Keys)
		if err != nil {
			return err
		}
		report, err := verify.Verify(t.Context(), verify.Input{Log: log, Witness: witness, Keys: keys, Queues: folders.Queues})
		if err != nil {
			return err
		}
		if len(report.Findings) > 0 {
			t.Fatalf("the audit has findings: %+v", report.Findings)
		}
		records := map[string][]audit.Record{}
		for _, chain := range report.Chains {
			read, err := recordsOf(t, log, chain.Writer)
			if err != nil {
				return err
			}
			records[audit.Service(chain.Writer)] = append(records[audit.Service(chain.Writer)], read...)
		}
		return check(records)
	})

}

func recordsOf(t *testing.T, log *sink.File, writer string) ([]audit.Record, error) {
	content, err := log.Open(t.Context(), writer, 0)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	var records []audit.Record
	for line := range bytes.Lines(text) {
		parsed, err := audit.ParseLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return nil, err
		}
		if parsed.Record != nil {
			records = append(records, *parsed.Record)
		}
	}
	return records, nil
}

// hasOutcomes returns an error unless the records about a cluster have these outcomes of each action, in this order.
func hasOutcomes(records []audit.Record, cluster string, want map[string]string) error {
	got := map[string]string{}
	for _, r := range records {
		if r.Object.Cluster == cluster && r.Outcome != audit.Started {
			got[r.Action] += r.Outcome + " by " + r.Person.Name + " for " + r.Ticket + "; "
		}
	}
	for action, outcomes := range want {
		if got[action] != outcomes {
			return fmt.Errorf("%s: recorded are %q, want %q", action, got[action], outcomes)
		}
	}
	return nil
}

// wasExecuted returns an error unless the records of a service contain the execution of each of the actions on a cluster for a person.
func wasExecuted(records []audit.Record, cluster, person string, actions ...string) error {
	for _, action := range actions {
		if !slices.ContainsFunc(records, func(r audit.Record) bool {
			return r.Object.Cluster == cluster && r.Action == action && r.Outcome == audit.Succeeded && r.Person.Name == person && r.Person.Elevation != ""
		}) {
			return fmt.Errorf("%s: its execution is not recorded for %s", action, person)
		}
	}
	return nil
}
