package accessaudit

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

const (
	// maxPending is the maximum number of events that wait for the audit.
	maxPending = 1024
	// firstRetry and lastRetry bound the pauses while the audit stores nothing.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
	// storeTimeout limits one attempt.
	storeTimeout = 5 * time.Second
)

// chain stores events in the audit chain, in their order. An event has happened before it is stored, and nothing can refuse it: its
// transaction is committed. It is missing in the chain if the process is killed in between, or if the audit stores nothing for so long
// that too many events wait. The log has it.
type chain struct {
	records audit.Recorder
	pending chan audit.Record
	missing prometheus.Counter
	log     *slog.Logger
}

func newChain(records audit.Recorder, log *slog.Logger, registry prometheus.Registerer) *chain {
	c := &chain{records: records, log: log, pending: make(chan audit.Record, maxPending), missing: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cluster_service_access_records_missing_total",
		Help: "Events of the access to clusters that are missing in the audit chain, because the audit stored nothing for too long. The log has them."})}
	registry.MustRegister(c.missing)
	return c
}

// add passes an event on. It does not block.
func (c *chain) add(ctx context.Context, r fleet.AccessRecord) {
	record := chained(ctx, r)
	select {
	case c.pending <- record:
	default:
		c.miss(ctx, record)
	}
}

// run stores events until ctx ends, then those that wait.
func (c *chain) run(ctx context.Context) {
	retry := backoff.New(firstRetry, lastRetry)
	for {
		select {
		case <-ctx.Done():
			c.drain(ctx)
			return
		case r := <-c.pending:
			for c.store(ctx, r) != nil {
				if retry.Wait(ctx) != nil {
					c.miss(ctx, r)
					break
				}
			}
			retry.Reset()
		}
	}
}

// drain stores the events that wait, each with one attempt.
func (c *chain) drain(ctx context.Context) {
	for {
		select {
		case r := <-c.pending:
			if c.store(ctx, r) != nil {
				c.miss(ctx, r)
			}
		default:
			return
		}
	}
}

// store makes one attempt, also at the end of the process.
func (c *chain) store(ctx context.Context, r audit.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return c.records.Append(ctx, r)
}

func (c *chain) miss(ctx context.Context, r audit.Record) {
	c.missing.Inc()
	c.log.ErrorContext(ctx, "an event of the access to a cluster is missing in the audit chain", logkey.Action, r.Action, logkey.ClusterUID, r.Object.Cluster)
}

// chained returns the audit record of an event. The person is the requester of the credential or revocation. The object of the use of
// an unknown certificate is the certificate, and its person the user that the API server authenticated.
func chained(ctx context.Context, r fleet.AccessRecord) audit.Record {
	record := audit.Record{Peer: mesh.ClientName(ctx), Action: r.Action, Outcome: audit.Succeeded, Object: audit.Object{ResourceID: r.ResourceID, Cluster: r.ClusterUID}}
	switch {
	case r.Revocation != nil:
		record.Object.Kind, record.Object.ID, record.Operation = "revocation", r.Revocation.UID, r.Revocation.UID
		record.Person.Name, record.Reason = r.Revocation.Requester, r.Revocation.Reason
	case r.Credential != nil:
		record.Object.Kind, record.Object.ID, record.Operation = "credential", r.Credential.UID, r.Credential.UID
		record.Person.Name, record.Reason = r.Credential.Spec.GetRequester(), r.Credential.Spec.GetReason()
		record.Level, record.Person.Elevation, record.Emergency = levelOf(r.Credential), r.Credential.Spec.GetElevation(), r.Credential.Spec.GetEmergency()
	case r.Use != nil:
		record.Object.Kind, record.Object.ID, record.Person.Name = "certificate", r.Use.Fingerprint, r.Use.User
	}
	return record
}
