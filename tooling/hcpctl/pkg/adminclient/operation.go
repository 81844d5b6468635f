package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	return call[adminv1.Operation](ctx, c, method, path, uuid.NewString(), content)
}

// call sends a request that may be repeated, and repeats it once if it is not answered.
func call[R any](ctx context.Context, c *Client, method, path, key string, body any) (*R, error) {
	answer := new(R)
	err := c.send(ctx, method, path, nil, key, body, answer)
	if _, unanswered := errors.AsType[*unreachableError](err); unanswered && backoff.Sleep(ctx, askAgain) == nil {
		err = c.send(ctx, method, path, nil, key, body, answer)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Await waits for the end of an operation and returns it. A failed operation is also an error.
func (c *Client) Await(ctx context.Context, operation *adminv1.Operation) (*adminv1.Operation, error) {
	pause, heard := firstPoll, time.Now()
	for !operation.State.Terminal() {
		if err := backoff.Sleep(ctx, pause); err != nil {
			return operation, fmt.Errorf("operation %s is %s and continues; see `hcpctl operation get %s`: %w", operation.ID, operation.State, operation.ID, err)
		}
		pause = min(2*pause, mostPoll)
		switch current, err := Get(ctx, c, adminv1.ReadOperation, nil, operation.ID); {
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
	err := DecodeResult(operation, &answer)
	return answer.Of, err
}

// DecodeResult decodes the result of an operation.
func DecodeResult(operation *adminv1.Operation, into any) error {
	if err := json.Unmarshal(operation.Result, into); err != nil {
		return fmt.Errorf("reading the result of operation %s: %w", operation.ID, err)
	}
	return nil
}

// Effect returns the description of the effect in the result of an operation; empty if there is none.
func Effect(operation *adminv1.Operation) string {
	var result struct {
		Effect string `json:"effect"`
	}
	_ = json.Unmarshal(operation.Result, &result) // a result of another form says nothing
	return result.Effect
}
