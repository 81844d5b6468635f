package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// An operation is polled at growing intervals. Polling continues for awayFor while admin is unreachable, because an accepted
// operation is executed anyway.
const (
	firstPoll = 100 * time.Millisecond
	mostPoll  = 2 * time.Second
	awayFor   = time.Minute
)

// askAgain is the pause before an unanswered request is repeated.
const askAgain = 500 * time.Millisecond

// Act requests an action. values are those of the wildcards of its path, in order. The body may be nil. It repeats an unanswered request once with the same
// idempotency key, so that it creates one operation.
func (c *Client) Act(ctx context.Context, action string, body any, values ...string) (*adminv1.Operation, error) {
	method, path, content := adminv1.FindAction(action).Request(body, values...)
	operation := &adminv1.Operation{}
	if err := c.sendTwice(ctx, method, path, uuid.NewString(), content, operation); err != nil {
		return nil, err
	}
	return operation, nil
}

// sendTwice sends a request that may be repeated, and repeats it once if it is not answered.
func (c *Client) sendTwice(ctx context.Context, method, path, key string, body, into any) error {
	err := c.send(ctx, method, path, nil, key, body, into)
	var unanswered *unreachableError
	if errors.As(err, &unanswered) && backoff.Sleep(ctx, askAgain) == nil {
		err = c.send(ctx, method, path, nil, key, body, into)
	}
	return err
}

// Orphans returns the Maestro bundles that belong to no ManifestWork.
func (c *Client) Orphans(ctx context.Context) (*adminv1.OrphanList, error) {
	return get[adminv1.OrphanList](ctx, c, "/orphans", nil)
}

// Drift returns the differences between ARM's documents and the fleet.
func (c *Client) Drift(ctx context.Context) (*adminv1.DriftList, error) {
	return get[adminv1.DriftList](ctx, c, "/drift", nil)
}

// Quota returns the quota of a subscription.
func (c *Client) Quota(ctx context.Context, subscription string) (*adminv1.Quota, error) {
	return get[adminv1.Quota](ctx, c, "/subscriptions/"+url.PathEscape(subscription)+"/quota", nil)
}

// Bundles returns the Maestro bundles of a cluster.
func (c *Client) Bundles(ctx context.Context, cluster string) (*adminv1.BundleList, error) {
	return get[adminv1.BundleList](ctx, c, clusterPath(cluster)+"/works", nil)
}

// Credentials returns the break-glass credentials of a cluster, without their certificates, and the revocations.
func (c *Client) Credentials(ctx context.Context, cluster string) (*adminv1.CredentialList, error) {
	return get[adminv1.CredentialList](ctx, c, clusterPath(cluster)+"/credentials", nil)
}

// Credential returns a break-glass credential. One of class sre has its certificate once it is issued.
func (c *Client) Credential(ctx context.Context, uid string) (*adminv1.FleetCredential, error) {
	return get[adminv1.FleetCredential](ctx, c, "/credentials/"+url.PathEscape(uid), nil)
}

// mostPerPage is the maximum page size of admin.
const mostPerPage = 500

// listNewest reads a list, newest first, up to limit items. It returns whether there are more.
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

// Operation returns an admin operation.
func (c *Client) Operation(ctx context.Context, id string) (*adminv1.Operation, error) {
	return get[adminv1.Operation](ctx, c, "/operations/"+url.PathEscape(id), nil)
}

// Operations returns the newest operations, up to limit, filtered by cluster and state unless they are empty.
func (c *Client) Operations(ctx context.Context, cluster, state string, limit int) (list []adminv1.Operation, more bool, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"cluster": cluster, "state": state} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return listNewest(ctx, c, "/operations", query, limit, func(l *adminv1.OperationList) ([]adminv1.Operation, string) { return l.Items, l.NextPageToken })
}

// Audit returns the newest audit records, up to limit.
func (c *Client) Audit(ctx context.Context, limit int) (list []adminv1.AuditEntry, more bool, err error) {
	return listNewest(ctx, c, "/audit", url.Values{}, limit, func(l *adminv1.AuditList) ([]adminv1.AuditEntry, string) { return l.Items, l.NextPageToken })
}

// Await waits for the end of an operation and returns it. A failed operation is also an error.
func (c *Client) Await(ctx context.Context, operation *adminv1.Operation) (*adminv1.Operation, error) {
	pause, heard := firstPoll, time.Now()
	for !operation.State.Terminal() {
		if err := backoff.Sleep(ctx, pause); err != nil {
			return operation, fmt.Errorf("operation %s is %s and continues; see `hcpctl operation get %s`: %w", operation.ID, operation.State, operation.ID, err)
		}
		pause = min(2*pause, mostPoll)
		switch current, err := c.Operation(ctx, operation.ID); {
		case err == nil:
			operation, heard = current, time.Now()
		case ctx.Err() != nil:
			// The next iteration returns the error of the context.
		case !IsRetryable(err) || time.Since(heard) > awayFor:
			return operation, fmt.Errorf("operation %s was accepted and continues, but its state cannot be read: %w", operation.ID, err)
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

// ErrNoResult means that an operation succeeded and its result is lost: it was repeated after a crash and had already been
// executed.
var ErrNoResult = errors.New("the operation has no result")

// Result decodes the message of Cluster Service in the result of an operation.
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

// Effect returns the description of the effect in the result of an operation; empty if there is none.
func Effect(operation *adminv1.Operation) string {
	var result struct {
		Effect string `json:"effect"`
	}
	_ = json.Unmarshal(operation.Result, &result) // a result of another form says nothing
	return result.Effect
}
