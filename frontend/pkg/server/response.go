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

func (w *response) content(status int, content []byte) {
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

// preconditions compares If-Match and If-None-Match with the ETag of a resource, which is empty if it does not exist.
func (rq *request) preconditions(etag string) error {
	failed := apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource has another ETag.")
	if condition := strings.Join(rq.http.Header.Values("If-Match"), ","); condition != "" {
		if etag == "" {
			return apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource does not exist.")
		}
		if !matches(condition, etag, false) {
			return failed
		}
	}
	if condition := strings.Join(rq.http.Header.Values("If-None-Match"), ","); condition != "" && etag != "" {
		if strings.TrimSpace(condition) == "*" {
			return apierror.New(apierror.PreconditionFailed, "The condition of the request does not hold: the resource exists.")
		}
		if matches(condition, etag, true) {
			return failed
		}
	}
	return nil
}

// matches reports whether a list of ETags contains etag; `*` matches every one. In the strong comparison, which
// If-Match uses, weak ETags never match. In the weak one, which If-None-Match uses, they match like strong ones (RFC
// 9110, section 8.8.3.2).
func matches(condition, etag string, weak bool) bool {
	for candidate := range strings.SplitSeq(condition, ",") {
		candidate = strings.TrimSpace(candidate)
		if weak {
			candidate = strings.TrimPrefix(candidate, "W/")
		}
		if candidate == "*" || candidate == etag {
			return true
		}
	}
	return false
}
