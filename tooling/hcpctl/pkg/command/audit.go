package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink/blobsink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// audit returns the command that lists the audit records of admin, with the command that verifies the audit chains.
func (e *environment) audit() *cobra.Command {
	c := history(e, &cobra.Command{Use: "audit", Short: "List the audit records of SREs, newest first", Args: cobra.NoArgs}, adminv1.ReadAudit, 50, noQuery, func(entries []adminv1.AuditEntry) error {
		return printList(e, entries, func(entry adminv1.AuditEntry) display.Row {
			o := adminv1.Operation{StartTime: entry.Time}
			if v := entry.Elevation; v != nil {
				o.Action, o.Target.ID, o.Actor.Name, o.Actor.Ticket, o.Actor.Reason, o.ID = "elevate", string(v.Class), v.Name, v.Ticket, v.Reason, v.ID
			} else if entry.Operation != nil {
				o = *entry.Operation
			}
			return operationRow(o)
		})
	})
	c.AddCommand(e.auditVerify())
	return c
}

// auditVerify returns the command that verifies the audit chains in a sink.
func (e *environment) auditVerify() *cobra.Command {
	var folders local.AuditFolders
	c := &cobra.Command{
		Use: "verify", Short: "Verify that no audit record was changed, deleted, inserted, moved, forged or cut off",
		Long: `Verify the audit chains of all writers in a sink: the hash and the place of each record, the signatures of the checkpoints, and that
no chain ends before its latest checkpoint in the witness. With the queues of the writers it also compares the end of each chain.
Without a queue it cannot find that records after the latest checkpoint were cut off: those of at most 10 seconds, or 256 records.
Records after the latest checkpoint are UNCONFIRMED: they may be forged. They are a finding after 55 seconds unless the queue has them, and at
once if the chain was closed or the queue was read without them.

The folders of the local region are the defaults. If --sink is set, the other folders have no defaults.

Exit codes: 0 if all chains are valid, 1 if a chain was changed or is not confirmed, 4 if the sink, the witness, the keys or a queue cannot be read.`,
	}
	flags := c.Flags()
	flags.StringVar(&folders.Sink, "sink", "", "`folder` or https URL of the container of the audit sink (default: the local region)")
	flags.StringVar(&folders.Witness, "witness", "", "`folder` or https URL of the container of the audit witness (default: the local region)")
	flags.StringVar(&folders.Keys, "keys", "", "`folder` with the public keys of each service, SERVICE.pem (default: the local region)")
	flags.StringArrayVar(&folders.Queues, "queue", nil, "`folder` of a writer's queue; may be repeated (default: the local region)")
	e.addOutputFlag(c)
	alsoCheck(c, func(*cobra.Command, []string) error {
		if folders.Sink != "" && (folders.Witness == "" || folders.Keys == "") {
			return errors.New("--sink requires --witness and --keys")
		}
		if folders.Sink == "" && (folders.Witness != "" || folders.Keys != "" || len(folders.Queues) > 0) {
			return errors.New("--witness, --keys and --queue require --sink")
		}
		return nil
	})
	c.RunE = func(c *cobra.Command, _ []string) error {
		if folders.Sink == "" {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			folders = existingQueues(local.AuditFoldersOf(dir))
		}
		report, err := verifyAudit(c.Context(), folders)
		if err != nil {
			return unavailable("the audit cannot be verified: %w", err)
		}
		if err := e.printAs(report, func() error { return e.printAudit(report) }); err != nil {
			return err
		}
		if n := len(report.Findings); n > 0 {
			return fmt.Errorf("the audit was changed or is not confirmed: %d findings; see docs/operators/audit.md", n)
		}
		return nil
	}
	return c
}

// existingQueues removes the queues of services that have never started.
func existingQueues(folders local.AuditFolders) local.AuditFolders {
	all := folders.Queues
	folders.Queues = nil
	for _, dir := range all {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			folders.Queues = append(folders.Queues, dir)
		}
	}
	return folders
}

func verifyAudit(ctx context.Context, folders local.AuditFolders) (*verify.Report, error) {
	log, witness, err := auditStorage(folders)
	if err != nil {
		return nil, err
	}
	keys, err := audit.LoadKeys(folders.Keys)
	if err != nil {
		return nil, err
	}
	return verify.Verify(ctx, verify.Input{Log: log, Witness: witness, Keys: keys, Queues: folders.Queues})
}

// auditStorage opens the sink and the witness: folders, or containers of Azure Blob Storage, which it reads with the caller's identity.
func auditStorage(folders local.AuditFolders) (log sink.Reader, witness sink.WitnessReader, err error) {
	var credential azcore.TokenCredential
	if isURL(folders.Sink) || isURL(folders.Witness) {
		if credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, nil, fmt.Errorf("the caller's identity in Azure: %w", err)
		}
	}
	if isURL(folders.Sink) {
		log, err = blobsink.New(blobsink.Config{URL: folders.Sink, Credential: credential})
	} else {
		log, err = sink.OpenFile(folders.Sink)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--sink: %w", err)
	}
	if isURL(folders.Witness) {
		witness, err = blobsink.NewWitness(blobsink.Config{URL: folders.Witness, Credential: credential})
	} else {
		witness, err = sink.OpenFileWitness(folders.Witness)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--witness: %w", err)
	}
	return log, witness, nil
}

func isURL(location string) bool { return strings.HasPrefix(location, "https://") }

// printAudit prints the chains and the findings.
func (e *environment) printAudit(report *verify.Report) error {
	if err := display.List(e.out, report.Chains, func(chain verify.Chain) display.Row {
		return display.Row{{"WRITER", chain.Writer}, {"RECORDS", fmt.Sprint(chain.Records)}, {"CHECKPOINTS", fmt.Sprint(chain.Checkpoints)}, {"UNCONFIRMED", fmt.Sprint(chain.Unconfirmed)}, {"OPEN", fmt.Sprint(chain.Open)},
			{"QUEUED BYTES", fmt.Sprint(chain.Queued)}, {"CLOSED", fmt.Sprint(chain.Closed)}, {"LAST", chain.Last.Local().Format(time.DateTime)}}
	}); err != nil {
		return err
	}
	for _, f := range report.Findings {
		place := "the chain"
		if f.Line > 0 {
			place = fmt.Sprintf("line %d", f.Line)
		}
		if f.Sequence > 0 {
			place += fmt.Sprintf(", record %d", f.Sequence)
		}
		if _, err := fmt.Fprintf(e.out, "%s: %s: %s: %s\n", f.Writer, place, f.Problem, f.Message); err != nil {
			return err
		}
	}
	return nil
}
