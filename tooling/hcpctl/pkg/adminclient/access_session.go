package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// sessionPoll is the pause between two reads of a session that is not ready.
const sessionPoll = 200 * time.Millisecond

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
		session, err := Get(ctx, c, adminv1.ReadAccessSession, nil, operation.ID)
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

// EndAccessSession ends an access session. It may be repeated.
func (c *Client) EndAccessSession(ctx context.Context, id string) (*adminv1.AccessSession, error) {
	return call[adminv1.AccessSession](ctx, c, http.MethodDelete, adminv1.ReadAccessSession.Target(id), "", nil)
}
