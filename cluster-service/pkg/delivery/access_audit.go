package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// What is made of the use of a certificate.
const (
	// useKnown is of a credential that may be used.
	useKnown = "known"
	// useEnded is of one that had been revoked, or had expired.
	useEnded = "ended"
	// useUnknown is of a certificate of the class's signer that was never asked for here.
	useUnknown = "unknown"
)

// AccessAudit writes one line for everything that happens to the access to clusters, when it is stored: who asked, why,
// until when, and which certificate; and for each that is used, from where. The rows have the same for as long as they are
// kept; a line can be lost with the process, a row cannot.
type AccessAudit struct {
	store *store.Store
	log   *slog.Logger
	uses  *prometheus.CounterVec
	// lookups are uses of certificates whose credential is not part of the aggregate any more.
	lookups chan fleet.AccessRecord
}

// maxLookups bounds the uses that wait for their credential to be read. A use beyond it is recorded without.
const maxLookups = 256

// NewAccessAudit makes an audit, and registers its metric.
func NewAccessAudit(store *store.Store, log *slog.Logger, registry prometheus.Registerer) *AccessAudit {
	a := &AccessAudit{store: store, log: log, lookups: make(chan fleet.AccessRecord, maxLookups), uses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_break_glass_uses_total",
		Help: "Reports that a break-glass certificate is used (the first use, one from another address, and one an hour), by class and what is known of it."},
		[]string{"class", "outcome"})}
	for _, class := range []csv1.BreakGlassClass{csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE} {
		for _, outcome := range []string{useKnown, useEnded, useUnknown} {
			a.uses.WithLabelValues(fleet.SignerClass(class), outcome)
		}
	}
	registry.MustRegister(a.uses)
	return a
}

// Run reads the credentials of uses that Record could not attribute, and writes their lines, until ctx is over.
func (a *AccessAudit) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-a.lookups:
			// A credential that ended long ago is not part of the aggregate any more.
			var err error
			if r.Credential, err = a.store.CredentialByFingerprint(ctx, r.ClusterUID, r.Use.Fingerprint); err != nil {
				a.log.WarnContext(ctx, "reading the credential of a certificate in use failed", "cluster_uid", r.ClusterUID,
					"fingerprint", r.Use.Fingerprint, "error", err)
			}
			a.write(ctx, r)
		}
	}
}

// Record writes a line for each record. It does not block: a use whose credential must be read first is left to Run.
func (a *AccessAudit) Record(ctx context.Context, records []fleet.AccessRecord) {
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

func (a *AccessAudit) write(ctx context.Context, r fleet.AccessRecord) {
	attributes := []slog.Attr{slog.String("record", "audit"), slog.String("action", r.Action), slog.String("cluster_uid", r.ClusterUID),
		slog.String("resource_id", r.ResourceID)}
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
}

// useAttributes joins the use of a certificate with the credential that it was issued for.
func (a *AccessAudit) useAttributes(r *fleet.AccessRecord) (attributes []slog.Attr, outcome string) {
	c := r.Credential
	class := credentialuse.Class(r.Use.User)
	switch {
	case c == nil:
		outcome = useUnknown
		attributes = []slog.Attr{slog.String("class", class), slog.String("fingerprint", r.Use.Fingerprint)}
	default:
		class, outcome = fleet.SignerClass(c.Spec.GetClass()), useKnown
		if c.UsedAfterEnd(r.Use.Last) {
			outcome = useEnded
		}
		attributes = credentialAttributes(c)
	}
	a.uses.WithLabelValues(class, outcome).Inc()
	return append(attributes, slog.String("outcome", outcome), slog.String("user", r.Use.User), slog.Time("first_use", r.Use.First),
		slog.Time("last_use", r.Use.Last), slog.Any("addresses", r.Use.Addresses), slog.String("first_request", r.Use.Request)), outcome
}

func credentialAttributes(c *fleet.Credential) []slog.Attr {
	attributes := []slog.Attr{slog.String("credential_uid", c.UID), slog.String("class", fleet.SignerClass(c.Spec.GetClass())),
		slog.String("actor", c.Spec.GetRequester()), slog.String("reason", c.Spec.GetReason())}
	if lifetime := c.Spec.GetLifetime(); lifetime != nil {
		attributes = append(attributes, slog.String("lifetime", lifetime.AsDuration().String()))
	}
	if until := c.Status.GetExpirationTime(); until != nil {
		attributes = append(attributes, slog.String("until", until.AsTime().Format(time.RFC3339)), slog.String("fingerprint", c.Fingerprint()))
	}
	return attributes
}

func revocationAttributes(v *fleet.Revocation) []slog.Attr {
	return []slog.Attr{slog.String("revocation_uid", v.UID), slog.String("class", fleet.SignerClass(v.Class)), slog.String("actor", v.Requester),
		slog.String("reason", v.Reason)}
}
