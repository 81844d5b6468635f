package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/sql"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// statusError is an error response.
type statusError struct {
	status, subStatus int
	message           string
}

// Error returns the message.
func (e *statusError) Error() string { return e.message }

// badRequest returns an error with status 400.
func badRequest(format string, args ...any) error {
	return &statusError{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

// methodNotAllowed returns the error for an unsupported method.
func methodNotAllowed(req *request) error {
	return &statusError{status: http.StatusMethodNotAllowed,
		message: fmt.Sprintf("The method %s is not allowed on %s.", req.r.Method, req.resourceType)}
}

// statusByKind maps the errors of the store to HTTP statuses.
var statusByKind = map[store.Kind]int{
	store.NotFound:           http.StatusNotFound,
	store.Conflict:           http.StatusConflict,
	store.PreconditionFailed: http.StatusPreconditionFailed,
	store.BadRequest:         http.StatusBadRequest,
	store.TooLarge:           http.StatusRequestEntityTooLarge,
	store.Gone:               http.StatusGone,
}

// codeByStatus maps HTTP statuses to the codes in error bodies.
var codeByStatus = map[int]string{
	http.StatusBadRequest:            "BadRequest",
	http.StatusUnauthorized:          "Unauthorized",
	http.StatusForbidden:             "Forbidden",
	http.StatusNotFound:              "NotFound",
	http.StatusMethodNotAllowed:      "MethodNotAllowed",
	http.StatusRequestTimeout:        "RequestTimeout",
	http.StatusConflict:              "Conflict",
	http.StatusGone:                  "Gone",
	http.StatusPreconditionFailed:    "PreconditionFailed",
	http.StatusRequestEntityTooLarge: "RequestEntityTooLarge",
	http.StatusTooManyRequests:       "429",
	449:                              "RetryWith",
	http.StatusInternalServerError:   "InternalServerError",
	http.StatusServiceUnavailable:    "ServiceUnavailable",
}

// toStatusError returns the error response for err. All statuses are chosen here.
func toStatusError(err error) *statusError {
	var status *statusError
	if errors.As(err, &status) {
		return status
	}
	var rejected *store.Error
	if errors.As(err, &rejected) {
		return &statusError{status: statusByKind[rejected.Kind], subStatus: rejected.SubStatus, message: rejected.Message}
	}
	var query *sql.Error
	if errors.As(err, &query) {
		return &statusError{status: http.StatusBadRequest, message: queryError(query)}
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return &statusError{status: http.StatusServiceUnavailable, message: "The emulator is shutting down."}
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return &statusError{status: http.StatusRequestTimeout, message: "The client canceled the request."}
	}
	return &statusError{status: http.StatusInternalServerError, message: "Internal error of the emulator: " + err.Error()}
}

// queryError returns the service's representation of an invalid query.
func queryError(e *sql.Error) string {
	one := document.Value{Kind: document.Object}.With("severity", document.FromString("Error"))
	if e.At >= 0 {
		at := document.Value{Kind: document.Object}.With("start", numberValue(float64(e.At))).With("end", numberValue(float64(e.At+1)))
		one = one.With("location", at)
	}
	one = one.With("code", document.FromString(e.Code)).With("message", document.FromString(e.Message))
	return document.Value{Kind: document.Object}.With("errors", document.FromArray([]document.Value{one})).JSON()
}

// header sets a response header. name must be in the canonical form of net/http.
func (req *request) header(name, value string) {
	if req.values == nil {
		req.values = make([]string, 0, typicalHeaders)
	}
	// All values share one array, because an array per value would dominate the allocations of a read.
	req.values = append(req.values, value)
	last := len(req.values) - 1
	req.w.Header()[name] = req.values[last : last+1 : last+1]
}

// typicalHeaders is the approximate number of response headers.
const typicalHeaders = 14

// setCommonHeaders sets the headers of all responses.
func (req *request) setCommonHeaders(charge float64) {
	req.header(headerActivityID, req.activityID)
	req.header(headerCharge, strconv.FormatFloat(charge, 'f', 2, 64))
	req.header(headerGatewayVersion, "version=2.0.0")
	req.header(headerServiceVersion, "version=hcpmesh-cosmos-emulator")
	req.header(headerSchemaVersion, "1.18")
}

// respondError writes an error response.
func (req *request) respondError(err error) {
	e := toStatusError(err)
	req.setCommonHeaders(1)
	req.header("Content-Type", "application/json")
	if e.subStatus != 0 {
		req.header(headerSubStatus, strconv.Itoa(e.subStatus))
	}
	code := codeByStatus[e.status]
	if code == "" {
		code = http.StatusText(e.status)
	}
	body := document.Value{Kind: document.Object, Obj: []document.Member{
		{Name: "code", Value: document.FromString(code)},
		{Name: "message", Value: document.FromString(e.message + "\r\nActivityId: " + req.activityID + ", hcpmesh-cosmos-emulator")},
	}}
	req.write(e.status, document.Append(nil, body))
}

// respond writes a response with a JSON body, or without a body if that is nil.
func (req *request) respond(status int, charge float64, body []byte) error {
	req.setCommonHeaders(charge)
	if body != nil {
		req.header("Content-Type", "application/json")
	}
	req.write(status, body)
	return nil
}

// write writes the status and the body.
func (req *request) write(status int, body []byte) {
	req.status = status
	if len(body) > 0 {
		req.header("Content-Length", strconv.Itoa(len(body)))
	}
	req.w.WriteHeader(status)
	_, _ = req.w.Write(body) // an error means that the client has disconnected
}

// discardWriter discards the response of a request for which a fault drops the response.
type discardWriter struct{ h http.Header }

func (d discardWriter) Header() http.Header         { return d.h }
func (d discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d discardWriter) WriteHeader(int)             {}

// feedBody returns the body of a list: {"_rid": …, "<name>": [ … ], "_count": n}.
func feedBody(rid, name string, rows [][]byte) []byte {
	size := 64
	for _, r := range rows {
		size += len(r) + 1
	}
	b := append(make([]byte, 0, size), `{"_rid":`...)
	b = document.AppendString(b, rid)
	b = append(b, ',')
	b = document.AppendString(b, name)
	b = append(b, ':', '[')
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, r...)
	}
	b = append(b, `],"_count":`...)
	b = strconv.AppendInt(b, int64(len(rows)), 10)
	return append(b, '}')
}

// The request charges approximate those of the service: a read of 1 KB costs 1, a write of 1 KB about 6.
func readCharge(size int) float64  { return 1 + 0.1*float64(max(0, size-1024)/1024) }
func writeCharge(size int) float64 { return 5.71 + 0.6*float64(size/1024) }
func queryCharge(read int) float64 { return 2.8 + 0.05*float64(read) }
