package refusals

import (
	"context"
	"path"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Call is Refused for a call that an Authorizer refused; see mesh.Authorizer.WithRefusals. The call stays refused if the record cannot
// be stored; the Authorizer has logged it. The person is the engineer who is proven to have asked for the call. The action is the name of
// the gRPC method, the pattern of the HTTP request or the action and channel of the topic; the path or topic is the object's ID.
func (a *Aggregator) Call(ctx context.Context, r mesh.Refusal) {
	action := r.Method
	if strings.HasPrefix(action, "/") {
		action = path.Base(action)
	}
	peer := string(r.Client)
	if r.Name != "" {
		peer += "/" + r.Name
	}
	a.Refused(ctx, audit.Record{
		Peer: peer, Person: audit.Person{Name: r.Engineer}, Action: action, Object: audit.Object{ID: r.Object}, Outcome: audit.Refused,
		Code: apierror.KindOf(r.Err).ARMCode(), Trace: tracing.Reference(ctx),
	})
}
