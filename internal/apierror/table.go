package apierror

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// mapping holds the codes of one kind.
type mapping struct {
	arm    string
	status int
	grpc   codes.Code
}

// table maps each kind to its codes. The ARM codes are those of the ARM resource provider contract.
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
	LastNodePool:             {"LastNodePool", http.StatusConflict, codes.FailedPrecondition},
	PreconditionFailed:       {"PreconditionFailed", http.StatusPreconditionFailed, codes.Aborted},
	FailedPrecondition:       {"Conflict", http.StatusConflict, codes.FailedPrecondition},
	OutOfRange:               {"InvalidParameter", http.StatusBadRequest, codes.OutOfRange},
	Unauthenticated:          {"Unauthorized", http.StatusUnauthorized, codes.Unauthenticated},
	PermissionDenied:         {"Forbidden", http.StatusForbidden, codes.PermissionDenied},
	QuotaExceeded:            {"QuotaExceeded", http.StatusConflict, codes.ResourceExhausted},
	Throttled:                {"TooManyRequests", http.StatusTooManyRequests, codes.ResourceExhausted},
	Unavailable:              {"ServiceUnavailable", http.StatusServiceUnavailable, codes.Unavailable},
}

// ARMCode returns the code in the error body of ARM.
func (k Kind) ARMCode() string { return table[k].arm }

// HTTPStatus returns the status code of an HTTP response.
func (k Kind) HTTPStatus() int { return table[k].status }

// GRPCCode returns the status code of a gRPC response.
func (k Kind) GRPCCode() codes.Code { return table[k].grpc }
