package service

import (
	"context"
	"unicode/utf8"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The bounds of an Actor in characters.
const (
	maxActorName   = 256
	maxActorReason = 1024
	maxActorTicket = 128
)

// actor validates the actor of a request.
func (c *check) actor(field string, a *csv1.Actor) {
	if a == nil {
		c.fail(field, "Required value")
		return
	}
	c.required(field+".name", a.GetName())
	c.required(field+".reason", a.GetReason())
	for name, bounded := range map[string]struct {
		value string
		most  int
	}{
		"name": {a.GetName(), maxActorName}, "reason": {a.GetReason(), maxActorReason}, "ticket": {a.GetTicket(), maxActorTicket},
	} {
		if utf8.RuneCountInString(bounded.value) > bounded.most {
			c.fail(field+"."+name, "Too long: may not be longer than %d characters", bounded.most)
		}
	}
}

// audit writes the audit record of an action: what was changed, on which cluster, with the calling workload, the actor and the
// reason. The actor is the engineer of the verified intent, if the call has one. It is called after the change is stored. Details
// are further keys and values, never secrets.
func (s *Service) audit(ctx context.Context, action, clusterUID string, a *csv1.Actor, details ...any) {
	if asked := intent.FromContext(ctx); asked != nil {
		a = &csv1.Actor{Name: asked.Engineer(), Reason: asked.Reason, Ticket: asked.Ticket}
		details = append(details, logkey.ObjectID, asked.ObjectID, logkey.OperationID, asked.OperationID)
	}
	s.o.Log.InfoContext(ctx, "audit", append([]any{logkey.Record, "audit", logkey.Action, action, logkey.ClusterUID, clusterUID,
		logkey.Client, mesh.ClientName(ctx), logkey.Actor, a.GetName(), logkey.Reason, a.GetReason(),
		logkey.Ticket, a.GetTicket()}, details...)...)
}
