package session

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Grants requests tokens for the API servers of management clusters. *tunnel.Server implements it.
type Grants interface {
	// Grant returns a token. The kind of the error is PermissionDenied for a refusal, which is final.
	Grant(ctx context.Context, managementCluster string, request grant.Request) (*grant.Grant, error)
}

// ServiceClusterGrants requests tokens for the API server of the service cluster. *grant.Client implements it.
type ServiceClusterGrants interface {
	// Grant is that of Grants.
	Grant(ctx context.Context, request grant.Request) (*grant.Grant, error)
}

// The pauses between two requests for a token.
const (
	firstGrantPause = 250 * time.Millisecond
	lastGrantPause  = 5 * time.Second
)

// judgeToken decides about a session for a management cluster or for the service cluster, as judge does for a cluster. issued is nil until this replica has a
// token. Then it determines the end: the document may contain another one.
func judgeToken(s *Session, document *database.AccessSessionDocument, issued *grant.Grant, now time.Time) verdict {
	v := verdict{deadline: document.Deadline()}
	if issued != nil {
		v.deadline, v.expiration = document.DeadlineOf(issued.ExpirationTime), issued.ExpirationTime
	}
	switch {
	case s.Mode.Level() == "":
		v.end = fmt.Sprintf("the gateway does not support the mode %q", s.Mode)
	case issued != nil && !belongs(issued, s):
		v.end, v.forged = "its token was issued for another session, engineer, elevation or mode", true
	case now.Before(v.deadline):
	case issued == nil && document.ExpirationTime == nil:
		v.end = "its token was not issued in time"
	default:
		v.end = "its token or its elevation has expired"
	}
	if v.end == "" && issued != nil {
		v.token = issued.Token
		v.endpoint = endpoint{url: issued.Server, authorities: issued.Authorities}
		if s.Shard != adminv1.ServiceCluster {
			v.endpoint.managementCluster, v.endpoint.clusterID = s.Shard, tunnel.APIServer
		}
	}
	return v
}

// belongs reports whether a token was issued for a session. Whoever can write documents could otherwise use the intent of another engineer.
func belongs(issued *grant.Grant, s *Session) bool {
	return issued.SessionID == s.ID && issued.ObjectID == s.Owner.ObjectID && issued.TenantID == s.Owner.TenantID && issued.ElevationID == s.Owner.ElevationID &&
		issued.Mode == s.Mode
}

// requestGrant requests the token of a session for a management cluster or for the service cluster, until it is issued or refused, or the session has ended. It
// does nothing for another session, and for one without an intent.
func (r *Registry) requestGrant(id string, e *entry) {
	shard := e.session.Shard
	if shard == "" || e.document.Intent == "" || e.requesting {
		return
	}
	var ask func(context.Context, grant.Request) (*grant.Grant, error)
	switch {
	case shard == adminv1.ServiceCluster && r.options.ServiceCluster == nil:
		r.end(id, e, "the session gateway has no sessions for the service cluster")
		return
	case shard == adminv1.ServiceCluster:
		ask = r.options.ServiceCluster.Grant
	case r.options.Grants == nil:
		r.end(id, e, "the session gateway has no tunnels to management clusters")
		return
	default:
		ask = func(ctx context.Context, request grant.Request) (*grant.Grant, error) {
			return r.options.Grants.Grant(ctx, shard, request)
		}
	}
	e.requesting = true
	request := grant.Request{Intent: e.document.Intent, Parameters: e.document.Parameters}
	r.requests.Go(func() {
		ctx, pauses := e.session.Context(), backoff.New(firstGrantPause, lastGrantPause)
		for {
			issued, err := ask(ctx, request)
			if err == nil || apierror.KindOf(err) == apierror.PermissionDenied {
				r.setGrant(id, e, issued, err)
				return
			}
			if ctx.Err() == nil {
				r.options.Log.Warn("no token was issued for a session; retrying", logkey.OperationID, id, logkey.Shard, shard, logkey.Error, err)
			}
			if pauses.Wait(ctx) != nil {
				return
			}
		}
	})
}

// setGrant notes the token of a session, or ends the session if the token was refused.
func (r *Registry) setGrant(id string, e *entry, issued *grant.Grant, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[id] != e {
		return
	}
	if refusal != nil {
		refuser := "the management cluster"
		if e.session.Shard == adminv1.ServiceCluster {
			refuser = "the service cluster"
		}
		r.end(id, e, refuser+" has refused a token: "+apierror.As(refusal).Message)
		return
	}
	e.grant = issued
	r.judge(id, e)
}
