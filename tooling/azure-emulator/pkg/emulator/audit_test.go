package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink/blobsink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// auditStorage is an emulator with the storage of an audit: a sink with a policy, one without, and a witness in another account.
type auditStorage struct {
	*emulatortest.Azure
}

// ownBlobs is the condition of the role of the service admin, as in the templates.
const ownBlobs = "((!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action'})) OR " +
	"(@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringLike 'admin-????????????????/*'))"

const witnessAccount = emulatortest.Group + "/providers/Microsoft.Storage/storageAccounts/witness"

func startAuditStorage(t *testing.T) *auditStorage {
	t.Helper()
	const adder = "7a000000-0000-4000-8000-000000000009"
	blobs := "Microsoft.Storage/storageAccounts/blobServices/containers/"
	seed := emulatortest.Seed(zone)
	seed.Containers = append(seed.Containers,
		emulator.SeedContainer{Account: "audit", AccountID: emulatortest.Account, Name: "audit", Immutability: &blob.Immutability{Days: 365, ProtectedAppends: true}},
		emulator.SeedContainer{Account: "audit", AccountID: emulatortest.Account, Name: "mutable"},
		emulator.SeedContainer{Account: "witness", AccountID: witnessAccount, Name: "witness", Immutability: &blob.Immutability{Days: 365, ProtectedAppends: true}})
	// The role of a service: it can add to its own logs in the sink and the witness, and not write to them.
	seed.Roles = []rbac.Role{{ID: adder, Name: "Audit writer", Actions: []string{blobs + "read"}, DataActions: []string{blobs + "blobs/read", blobs + "blobs/add/action"}}}
	seed.Assignments = []arm.SeedAssignment{{PrincipalID: serviceID, Role: adder, Scope: emulatortest.Account, Condition: ownBlobs},
		{PrincipalID: serviceID, Role: adder, Scope: witnessAccount, Condition: ownBlobs}}
	seed.Assignments = append(seed.Assignments, emulatortest.Owner(entratest.ObjectID)...)
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed}))(t)
	t.Cleanup(func() {
		if err := azure.Close(); err != nil {
			t.Error(err)
		}
	})
	return &auditStorage{azure}
}

func (s *auditStorage) config(name string) blobsink.Config {
	return blobsink.Config{URL: s.URL + "/" + name, Credential: s.Tokens.Principal(serviceID), Options: s.Options().ClientOptions, MaxBlocks: 3}
}

func (s *auditStorage) sink(t *testing.T) *blobsink.Sink {
	return must.Get(blobsink.New(s.config("audit/audit")))(t)
}

func (s *auditStorage) witness(t *testing.T) *sink.WitnessLog {
	return must.Get(blobsink.NewWitness(s.config("witness/witness")))(t)
}

// TestAuditSink runs the conformance suite with blobs of three blocks, and a second sink for the same container.
func TestAuditSink(t *testing.T) {
	storage := startAuditStorage(t)
	first := storage.sink(t)
	audittest.CheckSink(t, first)
	audittest.CheckWitness(t, func() *sink.WitnessLog { return storage.witness(t) })
	// Another process continues, and the first one does not write where the other has written.
	second := storage.sink(t)
	must.Do(t, second.Append(t.Context(), audittest.SinkWriter, 12, []byte("second")))
	if err := first.Append(t.Context(), audittest.SinkWriter, 12, []byte("first")); err == nil {
		t.Error("two writers have written at the same place")
	}
	must.Do(t, first.Append(t.Context(), audittest.SinkWriter, 18, []byte("first")))
	if size, err := second.Size(t.Context(), audittest.SinkWriter); err != nil || size != 23 {
		t.Errorf("size %d, %v", size, err)
	}
	// It can neither begin nor continue a log of another service.
	const foreign = "backend-0123456789abcdef"
	for _, log := range []sink.Log{first, storage.witness(t)} {
		if err := log.Append(t.Context(), foreign, 0, []byte("forged")); err == nil || !strings.Contains(err.Error(), "AuthorizationPermissionMismatch") {
			t.Errorf("a service appends to the log of another one: %v", err)
		}
	}
	// The service itself can neither delete nor replace what it has exported or confirmed. Nobody else can, either.
	name := audittest.SinkWriter + "/" + fmt.Sprintf("%020d", 0) + ".jsonl"
	for _, where := range []string{"audit/audit", "witness/witness"} {
		for principal, refusal := range map[string]struct {
			status int
			code   string
		}{serviceID: {http.StatusForbidden, "AuthorizationPermissionMismatch"}, entratest.ObjectID: {http.StatusConflict, "BlobImmutableDueToPolicy"}} {
			client := must.Get(container.NewClient(storage.URL+"/"+where, storage.Tokens.Principal(principal), &container.ClientOptions{ClientOptions: storage.Options().ClientOptions}))(t)
			_, err := client.NewBlobClient(name).Delete(t.Context(), nil)
			wantError(t, err, refusal.status, refusal.code)
			_, err = client.NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(strings.NewReader("forged")), nil)
			wantError(t, err, refusal.status, refusal.code)
			_, err = client.NewAppendBlobClient(name).Create(t.Context(), nil)
			wantError(t, err, refusal.status, refusal.code)
		}
	}
}

// TestAuditSinkNeedsPolicy: records are not exported into a container in which they could be changed.
func TestAuditSinkNeedsPolicy(t *testing.T) {
	storage := startAuditStorage(t)
	mutable := must.Get(blobsink.New(storage.config("audit/mutable")))(t)
	if err := mutable.Append(t.Context(), audittest.SinkWriter, 0, []byte("x")); err == nil || !strings.Contains(err.Error(), "immutability policy") {
		t.Errorf("got %v", err)
	}
	if writers, err := mutable.Writers(t.Context()); err != nil || len(writers) != 0 {
		t.Errorf("the container has the logs %v, %v", writers, err)
	}
	for _, location := range []string{"", "http://account/container", "https://account", "https://account/container?sv=1", "/folder"} {
		if err := blobsink.Valid(location); err == nil {
			t.Errorf("%q is accepted", location)
		}
	}
}

// TestAuditSurvivesFailures exports a chain while responses are lost, requests are rejected, the storage is away and the process
// restarts. Every record is in the sink once, and in order.
func TestAuditSurvivesFailures(t *testing.T) {
	storage := startAuditStorage(t)
	dir := t.TempDir()
	key, err := audit.GenerateKey()
	must.Do(t, err)
	public, err := key.PublicPEM()
	must.Do(t, err)
	must.Do(t, os.WriteFile(filepath.Join(dir, "admin.pem"), public, 0o600))
	keys := must.Get(audit.LoadKeys(dir))(t)
	queue := filepath.Join(dir, "queue")

	// The first requests are the creation of a blob and an append.
	for _, rule := range []faults.Rule{
		{ID: "lost", Services: []string{"blob"}, Methods: []string{"PUT"}, DropResponse: true, Count: 3},
		{ID: "unsent", Services: []string{"blob"}, Methods: []string{"PUT"}, DropRequest: true, Count: 2},
		{ID: "busy", Services: []string{"blob"}, Skip: 10, Status: http.StatusServiceUnavailable, Count: 3},
	} {
		_, err := storage.Faults().Add(rule)
		must.Do(t, err)
	}
	const rounds, each = 4, 25
	written := 0
	appendRecord := func(w *writer.Writer) error {
		err := w.Append(t.Context(), audit.Record{Action: "test", Outcome: audit.Succeeded, Request: fmt.Sprint(written)})
		written++
		return err
	}
	for round := range rounds {
		w, err := writer.Open(writer.Config{Dir: queue, Service: "admin", Key: key, Log: storage.sink(t), Witness: storage.witness(t), MaxBytes: writer.DefaultBytes,
			Logger: slog.Default(), Metrics: prometheus.NewRegistry()})
		must.Do(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { w.Run(ctx) })
		for range each {
			must.Do(t, appendRecord(w))
		}
		if round == rounds-1 {
			// On a busy machine, one request can have the records of a round. The faults need more requests then.
			eventually.Soon(t, "all faults have fired", func() error {
				for _, rule := range storage.Faults().List() {
					if rule.Fired != rule.Count {
						return errors.Join(fmt.Errorf("the fault %s has fired %d times", rule.ID, rule.Fired), appendRecord(w))
					}
				}
				return nil
			})

			eventually.Soon(t, "the sink has everything", func() error {
				snapshot, err := writer.ReadQueue(queue)
				if err != nil {
					return err
				}
				size, err := storage.sink(t).Size(t.Context(), snapshot.Writer)
				if want := snapshot.Offset + int64(len(snapshot.Content)); err != nil || size != want {
					return fmt.Errorf("the sink has %d bytes, want %d: %v", size, want, err)
				}
				return nil
			})

		}
		stop()
		group.Wait()
	}
	report, err := verify.Verify(t.Context(), verify.Input{Log: storage.sink(t), Witness: storage.witness(t), Keys: keys, Queues: []string{queue}})
	if must.Do(t, err); len(report.Findings) > 0 || len(report.Chains) != 1 {
		t.Fatalf("%d chains, findings %+v", len(report.Chains), report.Findings)
	}
	var requests []string
	for _, line := range lines(t, storage.sink(t), report.Chains[0].Writer) {
		if line.Record != nil {
			requests = append(requests, line.Record.Request)
		}
	}
	for n := range written {
		if n >= len(requests) || requests[n] != fmt.Sprint(n) {
			t.Fatalf("the sink has the records %v", requests)
		}
	}
	if len(requests) != written {
		t.Errorf("the sink has %d records, want %d", len(requests), written)
	}
}

// lines returns the lines of a log.
func lines(t *testing.T, log sink.Reader, name string) []audit.Line {
	t.Helper()
	content, err := log.Open(t.Context(), name, 0)
	must.Do(t, err)
	defer content.Close()
	var text strings.Builder
	must.Get(io.Copy(&text, content))(t)
	var all []audit.Line
	for line := range strings.Lines(text.String()) {
		parsed, err := audit.ParseLine([]byte(strings.TrimSuffix(line, "\n")))
		all = append(all, must.Get(parsed, err)(t))
	}
	return all
}
