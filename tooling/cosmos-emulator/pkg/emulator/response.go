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

// statusError is a refusal with its HTTP status.
type statusError struct {
	status, subStatus int
	message           string
}

func (e *statusError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &statusError{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func methodNotAllowed(req *request) error {
	return &statusError{status: http.StatusMethodNotAllowed,
		message: fmt.Sprintf("The method %s is not allowed on %s.", req.r.Method, req.resourceType)}
}

var statusByKind = map[store.Kind]int{
	store.NotFound:           http.StatusNotFound,
	store.Conflict:           http.StatusConflict,
	store.PreconditionFailed: http.StatusPreconditionFailed,
	store.BadRequest:         http.StatusBadRequest,
	store.TooLarge:           http.StatusRequestEntityTooLarge,
	store.Gone:               http.StatusGone,
}

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

// toStatusError is the one place where errors get their status.
func toStatusError(err error) *statusError {
	var status *statusError
	if errors.As(err, &status) {
		return status
	}
	var refusal *store.Error
	if errors.As(err, &refusal) {
		return &statusError{status: statusByKind[refusal.Kind], subStatus: refusal.SubStatus, message: refusal.Message}
	}
	var query *sql.Error
	if errors.As(err, &query) {
		return &statusError{status: http.StatusBadRequest, message: queryError(query)}
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return &statusError{status: http.StatusServiceUnavailable, message: "The emulator is stopping."}
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return &statusError{status: http.StatusRequestTimeout, message: "The client gave up before the request was done."}
	}
	return &statusError{status: http.StatusInternalServerError, message: "The emulator failed: " + err.Error()}
}

// queryError is the service's form of what is wrong with a query.
func queryError(e *sql.Error) string {
	one := document.Value{Kind: document.Object}.With("severity", document.FromString("Error"))
	if e.At >= 0 {
		at := document.Value{Kind: document.Object}.With("start", numberValue(float64(e.At))).With("end", numberValue(float64(e.At+1)))
		one = one.With("location", at)
	}
	one = one.With("code", document.FromString(e.Code)).With("message", document.FromString(e.Message))
	return document.Value{Kind: document.Object}.With("errors", document.FromArray([]document.Value{one})).JSON()
}

// header sets a header of the answer; the name is in the form in which net/http keeps it.
func (req *request) header(name, value string) {
	if req.values == nil {
		req.values = make([]string, 0, typicalHeaders)
	}
	// All values share an array: one for each would be most of what a read allocates.
	req.values = append(req.values, value)
	last := len(req.values) - 1
	req.w.Header()[name] = req.values[last : last+1 : last+1]
}

// typicalHeaders is about as many headers as an answer has.
const typicalHeaders = 14

// setCommonHeaders sets the headers of every answer.
func (req *request) setCommonHeaders(charge float64) {
	req.header(headerActivityID, req.activityID)
	req.header(headerCharge, strconv.FormatFloat(charge, 'f', 2, 64))
	req.header(headerGatewayVersion, "version=2.0.0")
	req.header(headerServiceVersion, "version=hcpmesh-cosmos-emulator")
	req.header(headerSchemaVersion, "1.18")
}

// respondError answers with an error.
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

// respond answers with JSON, or with nothing when body is nil.
func (req *request) respond(status int, charge float64, body []byte) error {
	req.setCommonHeaders(charge)
	if body != nil {
		req.header("Content-Type", "application/json")
	}
	req.write(status, body)
	return nil
}

func (req *request) write(status int, body []byte) {
	req.status = status
	if len(body) > 0 {
		req.header("Content-Length", strconv.Itoa(len(body)))
	}
	req.w.WriteHeader(status)
	_, _ = req.w.Write(body) // the client is gone
}

// discardWriter swallows the answer of a request whose response is to be lost.
type discardWriter struct{ h http.Header }

func (d discardWriter) Header() http.Header         { return d.h }
func (d discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d discardWriter) WriteHeader(int)             {}

// feedBody is the body of a list: {"_rid": …, "<name>": [ … ], "_count": n}.
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

// Request charges follow the order of magnitude of the service's: a read of 1 KB costs 1, a write of 1 KB about 6.
func readCharge(size int) float64  { return 1 + 0.1*float64(max(0, size-1024)/1024) }
func writeCharge(size int) float64 { return 5.71 + 0.6*float64(size/1024) }
func queryCharge(read int) float64 { return 2.8 + 0.05*float64(read) }
