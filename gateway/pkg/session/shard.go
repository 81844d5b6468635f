package session

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Grants requests tokens for the API servers of management clusters. *tunnel.Server implements it.
type Grants interface {
	// Grant returns a token. The kind of the error is PermissionDenied for a refusal, which is final.
	Grant(ctx context.Context, managementCluster string, request tunnel.GrantRequest) (*tunnel.Grant, error)
}

// The pauses between two requests for a token.
const (
	firstGrantPause = 250 * time.Millisecond
	lastGrantPause  = 5 * time.Second
)

// judgeShard decides about a session for a management cluster. grant is nil until this replica has a token.
func judgeShard(document *database.AccessSessionDocument, grant *tunnel.Grant, now time.Time) verdict {
	v := verdict{deadline: document.Deadline()}
	if grant != nil && document.ExpirationTime == nil {
		v.deadline = document.DeadlineOf(grant.ExpirationTime)
	}
	switch {
	case adminv1.AccessMode(document.Mode).Level() == "":
		v.end = fmt.Sprintf("the gateway does not support the mode %q", document.Mode)
	case grant != nil && !belongs(grant, document):
		v.end = "its token was issued for another session, engineer, elevation or mode"
	case now.Before(v.deadline):
	case grant == nil && document.ExpirationTime == nil:
		v.end = "its token was not issued in time"
	default:
		v.end = "its token or its elevation has expired"
	}
	if v.end == "" && grant != nil {
		v.token = grant.Token
		v.endpoint = endpoint{url: grant.Server, authorities: grant.Authorities, managementCluster: document.Shard, clusterID: tunnel.APIServer}
	}
	return v
}

// belongs reports whether a token was issued for a session. Whoever can write documents could otherwise use the intent of another engineer.
func belongs(grant *tunnel.Grant, document *database.AccessSessionDocument) bool {
	return grant.SessionID == document.SessionID && grant.ObjectID == document.Owner.ObjectID && grant.TenantID == document.Owner.TenantID &&
		grant.ElevationID == document.Owner.ElevationID && string(grant.Mode) == document.Mode
}

// requestGrant requests the token of a session for a management cluster, until it is issued or refused, or the session has ended. It does nothing for another
// session, and for one without an intent.
func (r *Registry) requestGrant(id string, e *entry) {
	if e.document.Shard == "" || e.document.Intent == "" || e.requesting {
		return
	}
	if r.options.Grants == nil {
		r.end(id, e, "the session gateway has no tunnels to management clusters")
		return
	}
	e.requesting = true
	shard, request := e.document.Shard, tunnel.GrantRequest{Intent: e.document.Intent, Parameters: e.document.Parameters}
	r.requests.Go(func() {
		ctx, pauses := e.session.Context(), backoff.New(firstGrantPause, lastGrantPause)
		for {
			grant, err := r.options.Grants.Grant(ctx, shard, request)
			if err == nil || apierror.KindOf(err) == apierror.PermissionDenied {
				r.setGrant(id, e, grant, err)
				return
			}
			if ctx.Err() == nil {
				r.options.Log.Warn("no token was issued for a management cluster; retrying", logkey.OperationID, id, logkey.Shard, shard, logkey.Error, err)
			}
			if pauses.Wait(ctx) != nil {
				return
			}
		}
	})
}

// setGrant notes the token of a session, or ends the session if the agent has refused it.
func (r *Registry) setGrant(id string, e *entry, grant *tunnel.Grant, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[id] != e {
		return
	}
	if refusal != nil {
		r.end(id, e, "the management cluster has refused a token: "+apierror.As(refusal).Message)
		return
	}
	e.grant = grant
	r.judge(id, e)
}
