// Package egresslink keeps the signed intents of egress links valid, without which the egress gateway refuses them. A link outlives the key with which admin signed
// its intent: a Sealer signs the intent again with the primary key. Links of releases that stored no intent get that of their operation. The Sealer signs only what
// it has verified, so that whoever can write to the database gets no signature.
package egresslink

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// interval is the pause between two passes. A rotation keeps the former key for more than a day.
const interval = time.Hour

// Sealer signs the intents of links again.
type Sealer struct {
	db         *database.DB
	signer     *intent.Signer
	log        *slog.Logger
	unverified prometheus.Gauge
}

// NewSealer returns a Sealer. It registers its metric.
func NewSealer(db *database.DB, signer *intent.Signer, log *slog.Logger, metrics prometheus.Registerer) *Sealer {
	s := &Sealer{db: db, signer: signer, log: log, unverified: prometheus.NewGauge(prometheus.GaugeOpts{Name: "admin_egress_links_unverified",
		Help: "Egress links for which no signed intent of an engineer is, as of the last pass; -1 before the first. The egress gateway refuses them: assign them again."})}
	s.unverified.Set(-1)
	metrics.MustRegister(s.unverified)
	return s
}

// Run passes over all links until ctx ends. Several replicas may run at once.
func (s *Sealer) Run(ctx context.Context) {
	for {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "sealing egress links failed; retrying", logkey.Error, err)
		}
		if backoff.Sleep(ctx, interval) != nil {
			return
		}
	}
}

// Pass reads all links and signs those that need it.
func (s *Sealer) Pass(ctx context.Context) error {
	var links []database.EgressLinkDocument
	err := s.db.EachEgressLink(ctx, func(item *database.Item[database.EgressLinkDocument]) error {
		if item.Value.RemovedTime == nil {
			links = append(links, item.Value)
		}
		return nil
	})
	var unreadable *database.UnreadableError
	if err != nil && !errors.As(err, &unreadable) {
		return err
	}
	unverified := 0
	failures := []error{err}
	for i := range links {
		verified, err := s.seal(ctx, &links[i])
		failures = append(failures, err)
		if err == nil && !verified {
			unverified++
		}
	}
	s.unverified.Set(float64(unverified))
	return errors.Join(failures...)
}

// seal signs the intent of a link with the primary key unless it has that signature. It reports whether the link has an intent.
func (s *Sealer) seal(ctx context.Context, l *database.EgressLinkDocument) (verified bool, err error) {
	id, err := database.ParseEgressLinkID(l.LinkID)
	if err != nil {
		return false, err
	}
	asked, refusal := adminaction.VerifyEgressLink(ctx, s.signer.Verifier(), l)
	if refusal != nil {
		item, err := s.db.AdminOperations().Find(ctx, database.AdminOperationKey(l.OperationID))
		if err != nil {
			return false, err
		}
		if item != nil {
			l.Intent = item.Value.Intent
			asked, refusal = adminaction.VerifyEgressLink(ctx, s.signer.Verifier(), l)
		}
		if refusal != nil {
			s.log.ErrorContext(ctx, "an egress link is not verified; assign it again", logkey.Link, l.LinkID, logkey.ClusterUID, l.ClusterUID, logkey.ResourceID, l.ResourceID,
				logkey.OperationID, l.OperationID, logkey.Message, refusal.Error())
			return false, nil
		}
	} else if s.signer.Primary(l.Intent) {
		return true, nil
	}
	signed, err := s.signer.Sign(asked)
	if err != nil {
		return false, err
	}
	s.log.InfoContext(ctx, "the intent of an egress link was signed again", logkey.Link, l.LinkID, logkey.OperationID, l.OperationID)
	return true, s.db.SealEgressLink(ctx, id, l.OperationID, signed)
}
