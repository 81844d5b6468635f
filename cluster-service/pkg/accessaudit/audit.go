// Package accessaudit logs who had access to clusters: requests for credentials, revocations, and uses of certificates. It also
// stores these events in the audit chain of Cluster Service.
package accessaudit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Outcomes of joining the use of a certificate with a credential.
const (
	// useKnown is the use of a valid credential.
	useKnown = "known"
	// useEnded is the use of a credential that was revoked or had expired.
	useEnded = "ended"
	// useUnknown is the use of a certificate that the class's signer issued without a request to this service.
	useUnknown = "unknown"
)

// Audit logs one record for each stored change of the access to clusters: the requester, the reason, the end and the
// certificate. For each use of a certificate it logs the client's addresses. The database rows contain the same as long as they
// are stored. A log record can be lost with the process, a row cannot.
type Audit struct {
	store *store.Store
	log   *slog.Logger
	uses  *prometheus.CounterVec
	// lookups are uses of certificates whose credential is no longer part of the aggregate.
	lookups chan fleet.AccessRecord
	// chain is nil if events are only logged.
	chain *chain
}

// maxLookups is the maximum number of uses in lookups. A use beyond it is logged without its credential.
const maxLookups = 256

// New returns an audit and registers its metrics. If records is nil, events are only logged.
func New(store *store.Store, records audit.Recorder, log *slog.Logger, registry prometheus.Registerer) *Audit {
	a := &Audit{store: store, log: log, lookups: make(chan fleet.AccessRecord, maxLookups), uses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_break_glass_uses_total",
		Help: "Reported uses of break-glass certificates (the first use, a use from another address, one use an hour), by class and outcome: known, ended, unknown."},
		[]string{"class", "outcome"})}
	for _, class := range []csv1.BreakGlassClass{csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE} {
		for _, outcome := range []string{useKnown, useEnded, useUnknown} {
			a.uses.WithLabelValues(className(class), outcome)
		}
	}
	registry.MustRegister(a.uses)
	if records != nil {
		a.chain = newChain(records, log, registry)
	}
	return a
}

// Run reads the credentials of uses that Record could not join, logs their records, and stores all records in the audit chain, until
// ctx ends.
func (a *Audit) Run(ctx context.Context) {
	if a.chain != nil {
		var group sync.WaitGroup
		// Its end is after that of the loop, which adds to the chain.
		chaining, stop := context.WithCancel(context.WithoutCancel(ctx))
		group.Go(func() { a.chain.run(chaining) })
		defer group.Wait()
		defer stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-a.lookups:
			var err error
			if r.Credential, err = a.store.CredentialByFingerprint(ctx, r.ClusterUID, r.Use.Fingerprint); err != nil {
				a.log.WarnContext(ctx, "reading the credential of a certificate in use failed", logkey.ClusterUID, r.ClusterUID,
					logkey.Fingerprint, r.Use.Fingerprint, logkey.Error, err)
			}
			a.write(ctx, r)
		}
	}
}

// Record logs each record. It does not block: Run logs a use whose credential must be read first.
func (a *Audit) Record(ctx context.Context, records []fleet.AccessRecord) {
	for _, r := range records {
		if r.Use != nil && r.Credential == nil {
			select {
			case a.lookups <- r:
				continue
			default:
			}
		}
		a.write(ctx, r)
	}
}

func (a *Audit) write(ctx context.Context, r fleet.AccessRecord) {
	attributes := []slog.Attr{slog.String(logkey.Record, "audit"), slog.String(logkey.Action, r.Action), slog.String(logkey.ClusterUID, r.ClusterUID),
		slog.String(logkey.ResourceID, r.ResourceID)}
	// Changes that no call caused, such as the issue of a certificate, have no client.
	if client := mesh.ClientName(ctx); client != "" {
		attributes = append(attributes, slog.String(logkey.Client, client))
	}
	level := slog.LevelInfo
	switch {
	case r.Revocation != nil:
		attributes = append(attributes, revocationAttributes(r.Revocation)...)
	case r.Use != nil:
		use, outcome := a.useAttributes(&r)
		attributes = append(attributes, use...)
		if outcome != useKnown {
			level = slog.LevelError
		}
	case r.Credential != nil:
		attributes = append(attributes, credentialAttributes(r.Credential)...)
	}
	a.log.LogAttrs(ctx, level, "audit", attributes...)
	if a.chain != nil {
		a.chain.add(ctx, r)
	}
}

// useAttributes joins the use of a certificate with its credential.
func (a *Audit) useAttributes(r *fleet.AccessRecord) (attributes []slog.Attr, outcome string) {
	c := r.Credential
	class := hostedreport.CredentialClass(r.Use.User)
	switch {
	case c == nil:
		outcome = useUnknown
		attributes = []slog.Attr{slog.String(logkey.Class, class), slog.String(logkey.Fingerprint, r.Use.Fingerprint)}
	default:
		class, outcome = className(c.Spec.GetClass()), useKnown
		if c.UsedAfterEnd(r.Use.Last) {
			outcome = useEnded
		}
		attributes = credentialAttributes(c)
	}
	a.uses.WithLabelValues(class, outcome).Inc()
	return append(attributes, slog.String(logkey.Outcome, outcome), slog.String(logkey.User, r.Use.User), slog.Time(logkey.FirstUse, r.Use.First),
		slog.Time(logkey.LastUse, r.Use.Last), slog.Any(logkey.Addresses, r.Use.Addresses), slog.String(logkey.FirstRequest, r.Use.Request)), outcome
}

func credentialAttributes(c *fleet.Credential) []slog.Attr {
	attributes := []slog.Attr{slog.String(logkey.CredentialUID, c.UID), slog.String(logkey.Class, className(c.Spec.GetClass())),
		slog.String(logkey.Actor, c.Spec.GetRequester()), slog.String(logkey.Reason, c.Spec.GetReason())}
	if level := levelOf(c); level != "" {
		attributes = append(attributes, slog.String(logkey.AccessLevel, level))
	}
	if lifetime := c.Spec.GetLifetime(); lifetime != nil {
		attributes = append(attributes, slog.String(logkey.Lifetime, lifetime.AsDuration().String()))
	}
	if until := c.Status.GetExpirationTime(); until != nil {
		attributes = append(attributes, slog.String(logkey.Until, until.AsTime().Format(time.RFC3339)), slog.String(logkey.Fingerprint, c.Fingerprint()))
	}
	return attributes
}

// levelOf returns the level of an SRE's credential; empty for a customer's.
func levelOf(c *fleet.Credential) string {
	if c.Spec.GetClass() != csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
		return ""
	}
	return string(fleet.Level(c.Spec))
}

// className returns HyperShift's name of a class, or the API's name of a class without one. An audit record is never dropped
// because of its class.
func className(class csv1.BreakGlassClass) string {
	name, err := fleet.SignerClass(class)
	if err != nil {
		return class.String()
	}
	return name
}

func revocationAttributes(v *fleet.Revocation) []slog.Attr {
	return []slog.Attr{slog.String(logkey.RevocationUID, v.UID), slog.String(logkey.Class, className(v.Class)), slog.String(logkey.Actor, v.Requester),
		slog.String(logkey.Reason, v.Reason)}
}
