package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// pollEvery is how often an operation is asked after.
const pollEvery = 200 * time.Millisecond

// askAgain is how long a request that was not answered rests before it is sent again.
const askAgain = 500 * time.Millisecond

// change asks for something that is executed later. It is asked for once more when no answer came; with its key that is the same
// operation, should the first have been heard.
func (c *Client) change(ctx context.Context, method, path string, body any) (*adminv1.Operation, error) {
	operation, key := &adminv1.Operation{}, uuid.NewString()
	err := c.send(ctx, method, path, nil, key, body, operation)
	var unanswered *unansweredError
	if errors.As(err, &unanswered) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
			err = c.send(ctx, method, path, nil, key, body, operation)
		}
	}
	if err != nil {
		return nil, err
	}
	return operation, nil
}

// Act does an action on a cluster, as in pause, with a body that may be nil.
func (c *Client) Act(ctx context.Context, cluster, action string, body any) (*adminv1.Operation, error) {
	return c.change(ctx, http.MethodPost, clusterPath(cluster)+"/"+action, body)
}

// Scale sets the size of a node pool in the customer's place.
func (c *Client) Scale(ctx context.Context, cluster, pool string, size adminv1.ScaleRequest) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "node-pools/"+url.PathEscape(pool)+"/scale", size)
}

// ActOnARMOperation does an action, retry or cancel, on an operation of ARM's.
func (c *Client) ActOnARMOperation(ctx context.Context, id, action string) (*adminv1.Operation, error) {
	return c.change(ctx, http.MethodPost, "/arm-operations/"+url.PathEscape(id)+"/"+action, nil)
}

// DeleteOrphan has an orphan removed.
func (c *Client) DeleteOrphan(ctx context.Context, id string) (*adminv1.Operation, error) {
	return c.change(ctx, http.MethodDelete, "/orphans/"+url.PathEscape(id), nil)
}

// Orphans are the bundles at Maestro that are nobody's.
func (c *Client) Orphans(ctx context.Context) ([]adminv1.Orphan, error) {
	list, err := get[adminv1.OrphanList](ctx, c, "/orphans", nil)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Drift is where ARM's documents and the fleet disagree.
func (c *Client) Drift(ctx context.Context) (*adminv1.DriftList, error) {
	return get[adminv1.DriftList](ctx, c, "/drift", nil)
}

// ReconcileDrift has the whole region compared, and what the fleet lost sent again.
func (c *Client) ReconcileDrift(ctx context.Context) (*adminv1.Operation, error) {
	return c.change(ctx, http.MethodPost, "/drift/reconcile", nil)
}

// DeleteDrift has the fleet delete what ARM does not have.
func (c *Client) DeleteDrift(ctx context.Context, uid string) (*adminv1.Operation, error) {
	return c.change(ctx, http.MethodDelete, "/drift/"+url.PathEscape(uid), nil)
}

// Bundles are those of a cluster at Maestro.
func (c *Client) Bundles(ctx context.Context, cluster string) ([]adminv1.Bundle, error) {
	list, err := get[adminv1.BundleList](ctx, c, clusterPath(cluster)+"/works", nil)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Credentials are the break-glass credentials of a cluster without their certificates, and the revocations.
func (c *Client) Credentials(ctx context.Context, cluster string) (*adminv1.CredentialList, error) {
	return get[adminv1.CredentialList](ctx, c, clusterPath(cluster)+"/credentials", nil)
}

// Credential is a break-glass credential; an SRE's has its certificate once it is issued.
func (c *Client) Credential(ctx context.Context, uid string) (*adminv1.FleetCredential, error) {
	return get[adminv1.FleetCredential](ctx, c, "/credentials/"+url.PathEscape(uid), nil)
}

// Elevate gives the caller a role for a while.
func (c *Client) Elevate(ctx context.Context, asked adminv1.ElevationRequest) (*adminv1.Elevation, error) {
	elevation := &adminv1.Elevation{}
	return elevation, c.do(ctx, http.MethodPost, "/elevations", nil, asked, elevation)
}

// EndElevation ends an elevation.
func (c *Client) EndElevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	elevation := &adminv1.Elevation{}
	return elevation, c.do(ctx, http.MethodDelete, "/elevations/"+url.PathEscape(id), nil, nil, elevation)
}

// Elevations are the newest ones; active chooses those that give their role now.
func (c *Client) Elevations(ctx context.Context, active bool) ([]adminv1.Elevation, error) {
	query := url.Values{"pageSize": {"100"}}
	if active {
		query.Set("active", "true")
	}
	list, err := get[adminv1.ElevationList](ctx, c, "/elevations", query)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Operation is how one stands.
func (c *Client) Operation(ctx context.Context, id string) (*adminv1.Operation, error) {
	return get[adminv1.Operation](ctx, c, "/operations/"+url.PathEscape(id), nil)
}

// Operations are the newest ones; cluster and state choose, when they are not empty.
func (c *Client) Operations(ctx context.Context, cluster, state string, limit int) ([]adminv1.Operation, error) {
	query := url.Values{"pageSize": {fmt.Sprint(limit)}}
	for name, value := range map[string]string{"cluster": cluster, "state": state} {
		if value != "" {
			query.Set(name, value)
		}
	}
	list, err := get[adminv1.OperationList](ctx, c, "/operations", query)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Audit is the newest of what SREs did.
func (c *Client) Audit(ctx context.Context, limit int) ([]adminv1.AuditEntry, error) {
	list, err := get[adminv1.AuditList](ctx, c, "/audit", url.Values{"pageSize": {fmt.Sprint(limit)}})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Await waits for the end of an operation, and returns it as it ended; one that failed is an error besides.
func (c *Client) Await(ctx context.Context, operation *adminv1.Operation) (*adminv1.Operation, error) {
	for !operation.State.Terminal() {
		timer := time.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return operation, fmt.Errorf("operation %s is %s and goes on without being waited for: %w", operation.ID, operation.State, ctx.Err())
		case <-timer.C:
		}
		var err error
		if operation, err = c.Operation(ctx, operation.ID); err != nil {
			return nil, err
		}
	}
	if operation.State == adminv1.Failed {
		detail := adminv1.FailureDetail{Message: "it failed"}
		if operation.Error != nil {
			detail = *operation.Error
		}
		return operation, &Error{Detail: detail}
	}
	return operation, nil
}

// ErrNoResult says that an operation succeeded and nobody knows what was answered: it was asked for anew after a crash, and
// had been done.
var ErrNoResult = errors.New("the operation has no result")

// Result is the message that Cluster Service answered an operation with.
func Result[M proto.Message](operation *adminv1.Operation) (M, error) {
	var answer adminv1.Message[M]
	if len(operation.Result) == 0 || string(operation.Result) == "null" {
		return answer.Of, ErrNoResult
	}
	if err := json.Unmarshal(operation.Result, &answer); err != nil {
		return answer.Of, fmt.Errorf("reading the result of operation %s: %w", operation.ID, err)
	}
	return answer.Of, nil
}

// asked is a request of Cluster Service's as a body; the path and admin say the rest of it.
func asked[M proto.Message](request M) adminv1.Message[M] { return adminv1.Message[M]{Of: request} }

// Effect is what an operation's result says that it changed; empty when it says nothing.
func Effect(operation *adminv1.Operation) string {
	var result struct {
		Effect string `json:"effect"`
	}
	_ = json.Unmarshal(operation.Result, &result) // a result of another form says nothing
	return result.Effect
}
