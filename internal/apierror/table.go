package apierror

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

type mapping struct {
	arm    string
	status int
	grpc   codes.Code
}

// table is the only place where kinds meet ARM's codes (the ARM resource provider contract) and gRPC's.
var table = map[Kind]mapping{
	Internal:                 {"InternalServerError", http.StatusInternalServerError, codes.Internal},
	Invalid:                  {"InvalidRequestContent", http.StatusBadRequest, codes.InvalidArgument},
	InvalidParameter:         {"InvalidParameter", http.StatusBadRequest, codes.InvalidArgument},
	InvalidResource:          {"InvalidResource", http.StatusBadRequest, codes.InvalidArgument},
	InvalidResourceType:      {"InvalidResourceType", http.StatusBadRequest, codes.InvalidArgument},
	InvalidResourceName:      {"InvalidResourceName", http.StatusBadRequest, codes.InvalidArgument},
	InvalidResourceGroupName: {"InvalidResourceGroupName", http.StatusBadRequest, codes.InvalidArgument},
	InvalidSubscriptionID:    {"InvalidSubscriptionID", http.StatusBadRequest, codes.InvalidArgument},
	InvalidSubscriptionState: {"InvalidSubscriptionState", http.StatusBadRequest, codes.FailedPrecondition},
	SubscriptionConflict:     {"InvalidSubscriptionState", http.StatusConflict, codes.FailedPrecondition},
	UnsupportedMediaType:     {"UnsupportedMediaType", http.StatusUnsupportedMediaType, codes.InvalidArgument},
	NotFound:                 {"NotFound", http.StatusNotFound, codes.NotFound},
	ResourceNotFound:         {"ResourceNotFound", http.StatusNotFound, codes.NotFound},
	SubscriptionNotFound:     {"SubscriptionNotFound", http.StatusNotFound, codes.NotFound},
	MethodNotAllowed:         {"MethodNotAllowed", http.StatusMethodNotAllowed, codes.Unimplemented},
	Conflict:                 {"Conflict", http.StatusConflict, codes.Aborted},
	PreconditionFailed:       {"PreconditionFailed", http.StatusPreconditionFailed, codes.Aborted},
	FailedPrecondition:       {"Conflict", http.StatusConflict, codes.FailedPrecondition},
	OutOfRange:               {"InvalidParameter", http.StatusBadRequest, codes.OutOfRange},
	Unauthenticated:          {"Unauthorized", http.StatusUnauthorized, codes.Unauthenticated},
	PermissionDenied:         {"Forbidden", http.StatusForbidden, codes.PermissionDenied},
	Throttled:                {"TooManyRequests", http.StatusTooManyRequests, codes.ResourceExhausted},
	Unavailable:              {"ServiceUnavailable", http.StatusServiceUnavailable, codes.Unavailable},
}

// ARMCode is the code that ARM clients see.
func (k Kind) ARMCode() string { return table[k].arm }

// HTTPStatus is the status of an HTTP answer.
func (k Kind) HTTPStatus() int { return table[k].status }

// GRPCCode is the code of a gRPC answer.
func (k Kind) GRPCCode() codes.Code { return table[k].grpc }
