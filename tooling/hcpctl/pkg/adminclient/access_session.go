package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// sessionPoll is the pause between two reads of a session that is not ready.
const sessionPoll = 200 * time.Millisecond

func accessSessionPath(id string) string { return "/access-sessions/" + url.PathEscape(id) }

// OpenSession requests an access session with one of the actions that request one, and waits until it is ready. values are those of the wildcards of its path.
func (c *Client) OpenSession(ctx context.Context, action string, asked adminv1.AccessSessionRequest, values ...string) (*adminv1.AccessSession, error) {
	operation, err := c.Act(ctx, action, asked, values...)
	if err != nil {
		return nil, err
	}
	return c.awaitSession(ctx, operation)
}

// awaitSession waits until the session of an operation is ready.
func (c *Client) awaitSession(ctx context.Context, operation *adminv1.Operation) (*adminv1.AccessSession, error) {
	operation, err := c.Await(ctx, operation)
	if err != nil {
		return nil, err
	}
	for {
		session, err := c.AccessSession(ctx, operation.ID)
		switch {
		case err != nil && !IsRetryable(err):
			return nil, err
		case err != nil:
		case session.State == adminv1.AccessSessionReady:
			return session, nil
		case session.State == adminv1.AccessSessionEnded:
			return nil, fmt.Errorf("the session %s has ended: %s", session.ID, session.EndReason)
		}
		if backoff.Sleep(ctx, sessionPoll) != nil {
			return nil, fmt.Errorf("the session %s is not ready: %w", operation.ID, ctx.Err())
		}
	}
}

// AccessSession returns an access session.
func (c *Client) AccessSession(ctx context.Context, id string) (*adminv1.AccessSession, error) {
	return get[adminv1.AccessSession](ctx, c, accessSessionPath(id), nil)
}

// AccessSessions returns the access sessions of a cluster, or of the management cluster of a shard or adminv1.ServiceCluster, or all sessions if both are empty,
// newest first.
func (c *Client) AccessSessions(ctx context.Context, cluster, shard string, openOnly bool) ([]adminv1.AccessSession, error) {
	query := url.Values{}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	if shard != "" {
		query.Set("shard", shard)
	}
	if openOnly {
		query.Set("open", "true")
	}
	list, err := get[adminv1.AccessSessionList](ctx, c, "/access-sessions", query)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// EndAccessSession ends an access session. It may be repeated.
func (c *Client) EndAccessSession(ctx context.Context, id string) (*adminv1.AccessSession, error) {
	session := &adminv1.AccessSession{}
	if err := c.sendTwice(ctx, http.MethodDelete, accessSessionPath(id), "", nil, session); err != nil {
		return nil, err
	}
	return session, nil
}

// Accesses returns the newest accesses of engineers to a cluster, up to limit, in a format: empty, or adminv1.AccessFormatARM for the form for customers.
func (c *Client) Accesses(ctx context.Context, cluster, format string, limit int) (list []adminv1.Access, more bool, err error) {
	query := url.Values{}
	if format != "" {
		query.Set("format", format)
	}
	return listNewest(ctx, c, clusterPath(cluster)+"/accesses", query, limit, func(l *adminv1.AccessList) ([]adminv1.Access, string) {
		next, err := url.Parse(l.NextLink)
		if err != nil {
			return l.Value, ""
		}
		return l.Value, next.Query().Get("pageToken")
	})
}
