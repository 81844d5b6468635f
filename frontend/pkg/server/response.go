package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// response records the status of a response.
type response struct {
	http.ResponseWriter
	// head is set for a HEAD, which ARM's clients use to check whether a resource exists: they expect 204.
	head   bool
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *response) Write(content []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(content)
}

// json responds with a value.
func (w *response) json(status int, value any) error {
	content, err := marshal(value)
	if err != nil {
		return err
	}
	w.content(status, content)
	return nil
}

func marshal(value any) ([]byte, error) {
	if resource, ok := value.(json.Marshaler); ok {
		// json.Marshal would parse the value's own JSON again.
		return resource.MarshalJSON()
	}
	return json.Marshal(value)
}

// content responds with JSON. The response to a HEAD has status 204 in place of 200, and the same ETag.
func (w *response) content(status int, content []byte) {
	if w.head && status == http.StatusOK {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	// If this fails, the client has closed the connection and cannot receive an error.
	_, _ = w.Write(content)
}

// errorBody is ARM's error response.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Target  string        `json:"target,omitempty"`
	Details []errorDetail `json:"details,omitempty"`
}

// multipleErrors is the code of an error with several violations as details.
const multipleErrors = "MultipleErrorsOccurred"

// describe returns ARM's form of an error. One violation is the error itself, several are its details.
func describe(e *apierror.Error) errorDetail {
	detail := errorDetail{Code: e.Kind.ARMCode(), Message: e.Message, Target: e.Target}
	if e.Kind == apierror.Internal {
		detail.Message = "Internal server error."
	}
	if len(e.Violations) > 1 {
		detail.Code, detail.Target = multipleErrors, ""
		detail.Message = fmt.Sprintf("%d errors occurred", len(e.Violations))
		if len(e.Violations) > apierror.MaxViolations {
			detail.Message = fmt.Sprintf("More than %d errors occurred", apierror.MaxViolations)
		}
		for _, v := range e.Violations {
			detail.Details = append(detail.Details, errorDetail{Code: e.Kind.ARMCode(), Message: v.Message, Target: v.Field})
		}
	}
	return detail
}

// describe returns the error for the caller of a request. An error without a target gets the resource or the path as
// its target; several violations have a target each.
func (rq *request) describe(e *apierror.Error) errorDetail {
	detail := describe(e)
	if detail.Target == "" && len(detail.Details) == 0 {
		detail.Target = rq.target()
	}
	return detail
}

// target returns the resource or the path of a request.
func (rq *request) target() string {
	if rq.resourceID != "" && !rq.invalidName {
		return rq.resourceID
	}
	return rq.printable(rq.http.URL.Path)
}

// writeError responds with an error.
func (s *Server) writeError(rq *request, err error) {
	e := apierror.As(err)
	rq.cause = err
	if errors.Is(err, http.ErrAbortHandler) || rq.w.status != 0 {
		return
	}
	if ctxErr := rq.http.Context().Err(); ctxErr != nil && e.Kind == apierror.Internal {
		// The caller has closed the connection or the process is terminating. Another attempt may succeed.
		e = apierror.New(apierror.Unavailable, "The request was interrupted.").WithCause(err)
	}
	detail := rq.describe(e)
	status := e.Kind.HTTPStatus()
	header := rq.w.Header()
	header.Set(armheader.ErrorCode, detail.Code)
	if challenge := authn.Challenge(err); challenge != "" {
		header.Set("WWW-Authenticate", challenge)
	}
	retryAfter := e.RetryAfter
	if retryAfter == 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		retryAfter = time.Second
	}
	apierror.SetRetryAfter(header, retryAfter)
	if err := rq.w.json(status, errorBody{detail}); err != nil {
		rq.w.WriteHeader(http.StatusInternalServerError)
	}
}

// ifMatch compares If-Match with the ETag of a resource, which is empty if it does not exist.
func (rq *request) ifMatch(etag string) error {
	condition := rq.condition("If-Match")
	switch {
	case condition == "":
		return nil
	case etag == "":
		return apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource does not exist.")
	case !matches(condition, etag, false):
		return errOtherETag
	}
	return nil
}

var errOtherETag = apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource has another ETag.")

// condition returns the value of a header with ETags. Several lines of the header are one list (RFC 9110, section 5.3).
func (rq *request) condition(header string) string {
	return strings.TrimSpace(strings.Join(rq.http.Header.Values(header), ","))
}

// preconditions compares If-Match and If-None-Match of a write with the ETag of a resource, which is empty if it does not exist.
func (rq *request) preconditions(etag string) error {
	if err := rq.ifMatch(etag); err != nil {
		return err
	}
	condition := rq.condition("If-None-Match")
	switch {
	case etag == "" || !matches(condition, etag, true):
		return nil
	case condition == "*":
		return apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource exists.")
	}
	return errOtherETag
}

// notModified evaluates the conditions of a read of an existing resource, in the order of RFC 9110, section 13.2.2. It returns
// PreconditionFailed if If-Match does not hold. If If-None-Match does not hold, it responds 304 and returns true.
func (rq *request) notModified(etag string) (bool, error) {
	rq.w.Header().Set("ETag", etag)
	if err := rq.ifMatch(etag); err != nil {
		return false, err
	}
	if !matches(rq.condition("If-None-Match"), etag, true) {
		return false, nil
	}
	rq.w.WriteHeader(http.StatusNotModified)
	return true, nil
}

// matches reports whether a condition is `*`, or a list of ETags that contains etag. In the strong comparison, which If-Match
// uses, weak ETags never match. In the weak one, which If-None-Match uses, they match like strong ones (RFC 9110, section
// 8.8.3.2). An element of the list that is not an ETag matches nothing.
func matches(condition, etag string, weak bool) bool {
	if condition == "*" {
		return true
	}
	for condition != "" {
		var candidate string
		candidate, condition = nextETag(condition)
		if weak {
			candidate = strings.TrimPrefix(candidate, "W/")
		}
		if candidate != "" && candidate == etag {
			return true
		}
	}
	return false
}

// nextETag returns the first element of a list of ETags, and the rest of the list. The text of an ETag may contain commas. The
// element is empty if it is not an ETag.
func nextETag(list string) (etag, rest string) {
	list = strings.TrimLeft(list, " \t,")
	quoted := strings.TrimPrefix(list, "W/")
	if strings.HasPrefix(quoted, `"`) {
		if end := strings.IndexByte(quoted[1:], '"'); end >= 0 {
			etag = list[:len(list)-len(quoted)+end+2]
		}
	}
	after, rest, _ := strings.Cut(list[len(etag):], ",")
	if strings.Trim(after, " \t") != "" {
		return "", rest
	}
	return etag, rest
}
