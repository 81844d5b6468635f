// Package action holds the actions and the gates of steps.
//
// An action is idempotent: a rollout that was killed runs it again with the same parameters. It ends when its context ends, with
// everything that it started. Its error has a class, from which the rollout decides whether to repeat it.
package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// Request is one execution of an action.
type Request struct {
	// Step is the name of the step, for messages.
	Step string
	// Target is the environment, region or stamp of the step.
	Target layer.Target
	// With are the parameters of the step with all references replaced.
	With map[string]any
	// Outputs are the names of the values that the action must return.
	Outputs []string
	// Last are the outputs of the last success. Only a rollback gets them.
	Last map[string]string
	// Root is the folder of the checkout.
	Root string
	// Log receives what the action writes for engineers. It is kept, so it must not get secrets.
	Log io.Writer
}

// Action does the work of a step.
type Action interface {
	// Run brings the world to the state that the request describes, and returns the outputs.
	Run(ctx context.Context, r Request) (map[string]string, error)
}

// Rollbacker is an action that can go back to an earlier success.
type Rollbacker interface {
	// Rollback brings the world back to the state of the request, which is that of the last success.
	Rollback(ctx context.Context, r Request) error
}

// Deleter is an action that deletes what it has created. The other actions create objects in clusters and vaults that a Deleter deletes.
type Deleter interface {
	// Delete deletes everything that Run has created. It succeeds if nothing of it exists.
	Delete(ctx context.Context, r Request) error
	// PreviewDeletion writes what Delete would delete, one thing in each line, and changes nothing. The error is that of a deletion that is not permitted.
	PreviewDeletion(ctx context.Context, r Request, out io.Writer) error
}

// Contenter is an action that reads more than its parameters and the files of its step.
type Contenter interface {
	// Content returns hashes of what the action reads besides its parameters and files, by name. A change of one runs the step again. It
	// reads files only. Parameters that are outputs of steps that run later are empty.
	Content(r Request) (map[string]string, error)
}

// Previewer is an action that can show what it would change.
type Previewer interface {
	// Preview writes the changes that Run would make, without secrets, and changes nothing.
	Preview(ctx context.Context, r Request, out io.Writer) error
}

// Class is the class of an error.
type Class string

// The classes of errors. The first four may be repeated.
const (
	// Conflict means that something else changes the same object.
	Conflict Class = "conflict"
	// Throttled means that a service has too many requests.
	Throttled Class = "throttled"
	// Timeout means that the action did not end in its time.
	Timeout Class = "timeout"
	// Unavailable means that a service did not answer, or that it was not ready.
	Unavailable Class = "unavailable"
	// ClassFailed is every other error.
	ClassFailed Class = "failed"
)

// Error is an error with its class.
type Error struct {
	Class Class
	Err   error
}

// Error returns the message without the class.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without the class.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error.
func ClassOf(err error) Class {
	var classified *Error
	switch {
	case errors.As(err, &classified):
		return classified.Class
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return ClassFailed
}

// ClassOfStatus returns the class of an HTTP status that is an error.
func ClassOfStatus(status int) Class {
	switch {
	case status == http.StatusTooManyRequests:
		return Throttled
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return Conflict
	case status >= 500:
		return Unavailable
	}
	return ClassFailed
}

// Decode converts the parameters of a request.
func Decode(r Request, into any) error {
	text, err := json.Marshal(r.With)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: reading the parameters: %w", r.Step, err)
	}
	return nil
}

// Available returns the actions that this program has, by name. The client is used for HTTP requests.
func Available(client *http.Client) map[string]Action {
	return map[string]Action{"Shell": Shell{}, "HTTP": HTTP{client}}
}
