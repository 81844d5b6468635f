package apierror

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ToGRPC converts err to a gRPC status error. Its google.rpc details are BadRequest for the violations, ErrorInfo of
// domain for the reason, and RetryInfo for RetryAfter. The text of an internal error is not included. Nil stays nil.
func ToGRPC(err error, domain string) error {
	if err == nil {
		return nil
	}
	e := As(err)
	s := status.New(e.Kind.GRPCCode(), e.Message)
	var details []protoadapt.MessageV1
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.Violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Message})
		}
		details = append(details, bad)
	}
	if e.Reason != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: e.Reason, Domain: domain})
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if len(details) > 0 {
		if detailed, detailErr := s.WithDetails(details...); detailErr == nil {
			s = detailed
		}
	}
	return s.Err()
}

// FromGRPC converts the error of a gRPC call to an *Error. Nil stays nil.
func FromGRPC(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	e := &Error{Kind: kindOfCode(s.Code()), Message: s.Message(), Cause: err}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{Field: v.GetField(), Message: v.GetDescription()})
			}
		case *errdetails.ErrorInfo:
			e.Reason = d.GetReason()
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if len(e.Violations) > 0 {
		e.Target = e.Violations[0].Field
	}
	return e
}

func kindOfCode(code codes.Code) Kind {
	switch code {
	case codes.InvalidArgument:
		return Invalid
	case codes.NotFound:
		return NotFound
	case codes.Aborted, codes.AlreadyExists:
		return Conflict
	case codes.FailedPrecondition:
		return FailedPrecondition
	case codes.OutOfRange:
		return OutOfRange
	case codes.Unauthenticated:
		return Unauthenticated
	case codes.PermissionDenied:
		return PermissionDenied
	case codes.ResourceExhausted:
		return Throttled
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return Unavailable
	default:
		return Internal
	}
}
