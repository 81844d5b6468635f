// Package apierror is the one error type that crosses hcpmesh's boundaries: a kind, a message for whoever made the
// request, and the violations of single fields. One table maps a kind to ARM's code and HTTP status, another to gRPC's
// code; nothing else in the project decides on status codes, and nobody matches on error texts.
//
// Services return an *Error where the caller can do something about it; any other error is an internal one, whose text
// is logged and never shown.
package apierror

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong, as the caller needs to know it.
type Kind int

// The kinds. Their ARM codes, HTTP statuses and gRPC codes stand in table.go.
const (
	// Internal is a fault of ours; its text is not shown.
	Internal Kind = iota
	// Invalid is a request whose content is wrong; Violations say where.
	Invalid
	// InvalidParameter is a query parameter or header that is missing or wrong.
	InvalidParameter
	// InvalidResource is a body that cannot be a resource: too large, or not an object.
	InvalidResource
	// InvalidResourceType is an api-version or resource type that does not exist.
	InvalidResourceType
	// InvalidResourceName is a resource's name in the path that no resource can have; the next two are its siblings.
	InvalidResourceName
	InvalidResourceGroupName
	InvalidSubscriptionID
	// InvalidSubscriptionState is a request that the subscription's state does not allow to anybody.
	InvalidSubscriptionState
	// SubscriptionConflict is a write that the subscription's state does not allow for now.
	SubscriptionConflict
	// UnsupportedMediaType is a body that is not JSON.
	UnsupportedMediaType
	// NotFound is a path or an object that does not exist.
	NotFound
	// ResourceNotFound is an ARM resource that does not exist.
	ResourceNotFound
	// SubscriptionNotFound is a subscription that ARM never told of.
	SubscriptionNotFound
	// MethodNotAllowed is a known path with another method.
	MethodNotAllowed
	// Conflict is a request that does not fit the state the resource is in.
	Conflict
	// PreconditionFailed is an If-Match or If-None-Match that does not hold.
	PreconditionFailed
	// FailedPrecondition is a gRPC request that the state of the system refuses; Reason says which rule.
	FailedPrecondition
	// OutOfRange is a position that is no longer, or not yet, kept.
	OutOfRange
	// Unauthenticated is a caller who did not prove who they are.
	Unauthenticated
	// PermissionDenied is a caller who may not do this.
	PermissionDenied
	// Throttled is a request that should come again after RetryAfter.
	Throttled
	// Unavailable is a dependency that cannot be reached now; the request should come again after RetryAfter.
	Unavailable
)

// Violation is one wrong field.
type Violation struct {
	// Field is its JSON path as the caller wrote it, as in properties.network.hostPrefix.
	Field string
	// Message is in Kubernetes' wording, as in `Invalid value: 30: must be less than or equal to 26`.
	Message string
}

// Error is an answer to the caller.
type Error struct {
	Kind Kind
	// Message is one sentence for the caller. It never holds a secret.
	Message string
	// Target names the field, parameter or resource that the error is about; may be empty.
	Target string
	// Violations are the wrong fields of an Invalid request, all of them.
	Violations []Violation
	// Reason is a constant in UPPER_SNAKE_CASE for programs; only gRPC carries it.
	Reason string
	// RetryAfter says when the same request may succeed; 0 says nothing.
	RetryAfter time.Duration
	// Cause is for the log, not for the caller.
	Cause error
}

// New makes an error of a kind with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// InvalidFields makes an Invalid error of violations, or nil when there are none.
func InvalidFields(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return &Error{Kind: Invalid, Message: violations[0].Message, Target: violations[0].Field, Violations: violations}
}

// Error is the text for logs.
func (e *Error) Error() string {
	text := e.Message
	if e.Target != "" {
		text = e.Target + ": " + text
	}
	if len(e.Violations) > 1 {
		text = fmt.Sprintf("%s (and %d more)", text, len(e.Violations)-1)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// WithTarget returns e with another target.
func (e *Error) WithTarget(target string) *Error { c := *e; c.Target = target; return &c }

// WithReason returns e with another reason.
func (e *Error) WithReason(reason string) *Error { c := *e; c.Reason = reason; return &c }

// WithRetryAfter returns e with a time after which to try again.
func (e *Error) WithRetryAfter(after time.Duration) *Error { c := *e; c.RetryAfter = after; return &c }

// WithCause returns e with a cause.
func (e *Error) WithCause(cause error) *Error { c := *e; c.Cause = cause; return &c }

// As finds the *Error in err's chain, or wraps err as an Internal one. It returns nil for nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Message: "Internal server error.", Cause: err}
}

// KindOf is the kind of err; Internal for an error of another type.
func KindOf(err error) Kind {
	return As(err).Kind
}
