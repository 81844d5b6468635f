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
}

// NewAccessAudit makes an audit, and registers its metric.
func NewAccessAudit(store *store.Store, log *slog.Logger, registry prometheus.Registerer) *AccessAudit {
	a := &AccessAudit{store: store, log: log, uses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_break_glass_uses_total",
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

// Record writes what happened.
func (a *AccessAudit) Record(ctx context.Context, records []fleet.AccessRecord) {
	for _, r := range records {
		attributes := []slog.Attr{slog.String("record", "audit"), slog.String("action", r.Action), slog.String("cluster_uid", r.ClusterUID),
			slog.String("resource_id", r.ResourceID)}
		level := slog.LevelInfo
		switch {
		case r.Revocation != nil:
			attributes = append(attributes, revocationAttributes(r.Revocation)...)
		case r.Use != nil:
			use, outcome := a.useAttributes(ctx, &r)
			attributes = append(attributes, use...)
			if outcome != useKnown {
				level = slog.LevelError
			}
		case r.Credential != nil:
			attributes = append(attributes, credentialAttributes(r.Credential)...)
		}
		a.log.LogAttrs(ctx, level, "audit", attributes...)
	}
}

// useAttributes joins the use of a certificate with the credential that it was issued for.
func (a *AccessAudit) useAttributes(ctx context.Context, r *fleet.AccessRecord) (attributes []slog.Attr, outcome string) {
	c := r.Credential
	if c == nil {
		// It may be one that has ended so long ago that it is not of the tenancy any more.
		var err error
		if c, err = a.store.CredentialWith(ctx, r.ClusterUID, r.Use.Fingerprint); err != nil {
			a.log.WarnContext(ctx, "the credential of a certificate that is used could not be looked for", "cluster_uid", r.ClusterUID,
				"fingerprint", r.Use.Fingerprint, "error", err)
		}
	}
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
