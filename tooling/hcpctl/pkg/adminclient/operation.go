package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// An operation is asked after soon at first, and then ever more rarely. For awayFor it is asked after although nobody answers: what
// was accepted is done all the same.
const (
	firstPoll = 100 * time.Millisecond
	mostPoll  = 2 * time.Second
	awayFor   = time.Minute
)

// askAgain is how long a request that was not answered rests before it is sent again.
const askAgain = 500 * time.Millisecond

// requestOperation asks for something that is executed later. It is asked for once more when no answer came; with its key that is the same
// operation, should the first have been heard.
func (c *Client) requestOperation(ctx context.Context, method, path string, body any) (*adminv1.Operation, error) {
	operation, key := &adminv1.Operation{}, uuid.NewString()
	err := c.send(ctx, method, path, nil, key, body, operation)
	var unanswered *unreachableError
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
	return c.requestOperation(ctx, http.MethodPost, clusterPath(cluster)+"/"+action, body)
}

// Scale sets the size of a node pool in the customer's place.
func (c *Client) Scale(ctx context.Context, cluster, pool string, size adminv1.ScaleRequest) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "node-pools/"+url.PathEscape(pool)+"/scale", size)
}

// ActOnARMOperation does an action, retry or cancel, on an operation of ARM's.
func (c *Client) ActOnARMOperation(ctx context.Context, id, action string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPost, "/arm-operations/"+url.PathEscape(id)+"/"+action, nil)
}

// DeleteOrphan has an orphan removed.
func (c *Client) DeleteOrphan(ctx context.Context, id string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodDelete, "/orphans/"+url.PathEscape(id), nil)
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
	return c.requestOperation(ctx, http.MethodPost, "/drift/reconcile", nil)
}

// DeleteDrift has the fleet delete what ARM does not have.
func (c *Client) DeleteDrift(ctx context.Context, uid string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodDelete, "/drift/"+url.PathEscape(uid), nil)
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

// mostPerPage is how many things admin lists at a time.
const mostPerPage = 500

// listNewest reads a list, newest first, until it has limit items or all; more says that there are others.
func listNewest[L, T any](ctx context.Context, c *Client, path string, query url.Values, limit int, read func(*L) (items []T, next string)) (all []T, more bool, err error) {
	all = []T{}
	for {
		query.Set("pageSize", strconv.Itoa(min(max(limit-len(all), 1), mostPerPage)))
		list, err := get[L](ctx, c, path, query)
		if err != nil {
			return nil, false, err
		}
		items, next := read(list)
		all = append(all, items...)
		if next == "" || len(all) >= limit {
			return all, next != "", nil
		}
		query.Set("pageToken", next)
	}
}

// Elevations are the newest ones, limit of them at most; active chooses those that give their role now.
func (c *Client) Elevations(ctx context.Context, active bool, limit int) (list []adminv1.Elevation, more bool, err error) {
	query := url.Values{}
	if active {
		query.Set("active", "true")
	}
	return listNewest(ctx, c, "/elevations", query, limit, func(l *adminv1.ElevationList) ([]adminv1.Elevation, string) { return l.Items, l.NextPageToken })
}

// Operation is how one stands.
func (c *Client) Operation(ctx context.Context, id string) (*adminv1.Operation, error) {
	return get[adminv1.Operation](ctx, c, "/operations/"+url.PathEscape(id), nil)
}

// Operations are the newest ones, limit of them at most; cluster and state choose, when they are not empty.
func (c *Client) Operations(ctx context.Context, cluster, state string, limit int) (list []adminv1.Operation, more bool, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"cluster": cluster, "state": state} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return listNewest(ctx, c, "/operations", query, limit, func(l *adminv1.OperationList) ([]adminv1.Operation, string) { return l.Items, l.NextPageToken })
}

// Audit is the newest of what SREs did, limit entries at most.
func (c *Client) Audit(ctx context.Context, limit int) (list []adminv1.AuditEntry, more bool, err error) {
	return listNewest(ctx, c, "/audit", url.Values{}, limit, func(l *adminv1.AuditList) ([]adminv1.AuditEntry, string) { return l.Items, l.NextPageToken })
}

// Await waits for the end of an operation, and returns it as it ended; one that failed is an error besides.
func (c *Client) Await(ctx context.Context, operation *adminv1.Operation) (*adminv1.Operation, error) {
	pause, heard := firstPoll, time.Now()
	for !operation.State.Terminal() {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return operation, fmt.Errorf("operation %s is %s and goes on without being waited for, see `hcpctl operation get %s`: %w", operation.ID, operation.State, operation.ID, ctx.Err())
		case <-timer.C:
		}
		pause = min(2*pause, mostPoll)
		switch current, err := c.Operation(ctx, operation.ID); {
		case err == nil:
			operation, heard = current, time.Now()
		case ctx.Err() != nil:
			// The next turn says so.
		case !IsRetryable(err) || time.Since(heard) > awayFor:
			return operation, fmt.Errorf("operation %s was accepted and goes on, but cannot be asked after: %w", operation.ID, err)
		}
	}
	if operation.State == adminv1.Failed {
		failed := &Error{Operation: operation.ID, Detail: adminv1.FailureDetail{Message: "nobody knows why"}}
		if operation.Error != nil {
			failed.Detail = *operation.Error
		}
		return operation, failed
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

// message is a request of Cluster Service's as a body; the path and admin say the rest of it.
func message[M proto.Message](request M) adminv1.Message[M] { return adminv1.Message[M]{Of: request} }

// Effect is what an operation's result says that it changed; empty when it says nothing.
func Effect(operation *adminv1.Operation) string {
	var result struct {
		Effect string `json:"effect"`
	}
	_ = json.Unmarshal(operation.Result, &result) // a result of another form says nothing
	return result.Effect
}
