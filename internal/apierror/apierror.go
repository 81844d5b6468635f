// Package apierror defines the error type that all APIs of hcpmesh return: a kind, a message for the caller, and the
// violations of single fields. One table maps each kind to an ARM code, an HTTP status and a gRPC code. No other package
// chooses status codes, and no code matches on error texts.
//
// Services return an *Error if the caller can act on it. All other errors are internal: their text is logged and is never
// part of a response.
package apierror

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Kind classifies an error for the caller.
type Kind int

// The kinds. table.go lists their ARM codes, HTTP statuses and gRPC codes.
const (
	// Internal is a fault of the service. The response does not contain its text.
	Internal Kind = iota
	// Invalid is a request with invalid content. Violations lists the fields.
	Invalid
	// InvalidParameter is a missing or invalid query parameter or header.
	InvalidParameter
	// InvalidResource is a body that cannot be a resource: too large, or not an object.
	InvalidResource
	// InvalidResourceType is an api-version or resource type that does not exist.
	InvalidResourceType
	// InvalidResourceName is a path with an invalid resource name. The next two do the same for other path segments.
	InvalidResourceName
	InvalidResourceGroupName
	InvalidSubscriptionID
	// InvalidSubscriptionState is a request that the state of the subscription does not allow.
	InvalidSubscriptionState
	// SubscriptionConflict is a write that the current state of the subscription does not allow, but a later one may.
	SubscriptionConflict
	// UnsupportedMediaType is a body that is not JSON.
	UnsupportedMediaType
	// NotFound is a path or an object that does not exist.
	NotFound
	// ResourceNotFound is an ARM resource that does not exist.
	ResourceNotFound
	// SubscriptionNotFound is a subscription that ARM has not registered.
	SubscriptionNotFound
	// MethodNotAllowed is an existing path that does not support the method.
	MethodNotAllowed
	// Conflict is a request that the current state of the resource does not allow.
	Conflict
	// LastNodePool is the deletion of a node pool that its cluster needs until the cluster is deleted.
	LastNodePool
	// PreconditionFailed is an If-Match or If-None-Match header that does not match.
	PreconditionFailed
	// FailedPrecondition is a gRPC request that the state of the system does not allow. Reason names the rule.
	FailedPrecondition
	// OutOfRange is a position that is no longer stored, or not stored yet.
	OutOfRange
	// Unauthenticated is a request without valid credentials.
	Unauthenticated
	// PermissionDenied is a request that the caller is not authorized to make.
	PermissionDenied
	// QuotaExceeded is the creation of a resource above a quota, which does not become possible by waiting.
	QuotaExceeded
	// Throttled is a request that the caller should retry after RetryAfter.
	Throttled
	// Unavailable is a dependency that is unreachable. The caller should retry after RetryAfter.
	Unavailable
)

// Violation is one invalid field.
type Violation struct {
	// Field is the JSON path in the request, for example properties.network.hostPrefix.
	Field string
	// Message is in the wording of Kubernetes, for example `Invalid value: 30: must be less than or equal to 26`.
	Message string
}

// Error is the error of a request, with everything that the response contains.
type Error struct {
	Kind Kind
	// Message is one sentence for the caller. It never contains a secret.
	Message string
	// Target names the field, parameter or resource with the error; may be empty.
	Target string
	// Violations lists all invalid fields of an Invalid request.
	Violations []Violation
	// Reason is a constant in UPPER_SNAKE_CASE for programs. Only gRPC transports it.
	Reason string
	// RetryAfter is the pause after which the caller may retry; 0 if unknown.
	RetryAfter time.Duration
	// Cause is logged and is not part of the response.
	Cause error
}

// New returns an error of a kind with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// MaxViolations is the most invalid fields that an error lists. Code that collects violations ends when it has one more.
const MaxViolations = wire.MaxProblems - 1

// maxField is the most bytes of the path of an invalid field. Paths contain keys of maps as the caller wrote them. A valid key has
// 2048 characters at most.
const maxField = 4096

// moreViolations is the last violation of an error with more than MaxViolations of them. It has no field.
var moreViolations = Violation{Message: fmt.Sprintf("There are more errors than these %d. Correct these, then repeat the request.", MaxViolations)}

// InvalidFields returns an Invalid error with the violations, or nil if there are none. It lists the first MaxViolations, and if
// there are more, one without a field that states so. It shortens long paths, so that the size of the error is limited.
func InvalidFields(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	if len(violations) > MaxViolations {
		violations = append(slices.Clone(violations[:MaxViolations]), moreViolations)
	}
	if long := func(v Violation) bool { return len(v.Field) > maxField }; slices.ContainsFunc(violations, long) {
		violations = slices.Clone(violations)
		for i, v := range violations {
			if long(v) {
				violations[i].Field = strings.ToValidUTF8(v.Field[:maxField], "") + "…"
			}
		}
	}
	return &Error{Kind: Invalid, Message: violations[0].Message, Target: violations[0].Field, Violations: violations}
}

// Error returns the text for logs, with the target and the cause.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// WithTarget returns a copy of e with another target.
func (e *Error) WithTarget(target string) *Error { c := *e; c.Target = target; return &c }

// WithReason returns a copy of e with another reason.
func (e *Error) WithReason(reason string) *Error { c := *e; c.Reason = reason; return &c }

// WithRetryAfter returns a copy of e with a pause after which the caller may retry.
func (e *Error) WithRetryAfter(after time.Duration) *Error { c := *e; c.RetryAfter = after; return &c }

// WithCause returns a copy of e with a cause.
func (e *Error) WithCause(cause error) *Error { c := *e; c.Cause = cause; return &c }

// As returns the first *Error in the chain of err, or wraps err in an Internal error. It returns nil for nil.
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

// KindOf returns the kind of err. The kind of an error without an *Error in its chain is Internal.
func KindOf(err error) Kind {
	return As(err).Kind
}
