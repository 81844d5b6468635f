package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// response remembers what was answered.
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

// json answers with a value.
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
		// Its own JSON is sent as it is, rather than read once more by json.Marshal.
		return resource.MarshalJSON()
	}
	return json.Marshal(value)
}

func (w *response) content(status int, content []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	// The client is gone when this fails, and nobody is left to be told.
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

// multipleErrors is the code over several field errors.
const multipleErrors = "MultipleErrorsOccurred"

// describe makes ARM's error of ours: one field error stands at the top, several stand below one.
func describe(e *apierror.Error) errorDetail {
	detail := errorDetail{Code: e.Kind.ARMCode(), Message: e.Message, Target: e.Target}
	if e.Kind == apierror.Internal {
		detail.Message = "Internal server error."
	}
	if len(e.Violations) > 1 {
		detail.Code, detail.Target = multipleErrors, ""
		detail.Message = "Content validation failed on multiple fields"
		for _, v := range e.Violations {
			detail.Details = append(detail.Details, errorDetail{Code: e.Kind.ARMCode(), Message: v.Message, Target: v.Field})
		}
	}
	return detail
}

// describe is describe for the caller of a request: what is said of no field, parameter or header is said of the resource,
// or else of the path. Several errors have a target each.
func (rq *request) describe(e *apierror.Error) errorDetail {
	detail := describe(e)
	if detail.Target == "" && len(detail.Details) == 0 {
		detail.Target = rq.target()
	}
	return detail
}

// target is what a request is about.
func (rq *request) target() string {
	if rq.resourceID != "" {
		return rq.resourceID
	}
	return shortened(strings.ToValidUTF8(rq.http.URL.Path, "\uFFFD"))
}

// fail answers with an error.
func (s *Server) fail(rq *request, err error) {
	e := apierror.As(err)
	rq.cause = err
	if errors.Is(err, http.ErrAbortHandler) || rq.w.status != 0 {
		return
	}
	if ctxErr := rq.http.Context().Err(); ctxErr != nil && e.Kind == apierror.Internal {
		// The caller has gone, or the process is ending; whoever still listens may try again.
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
	setRetryAfter(header, retryAfter)
	if err := rq.w.json(status, errorBody{detail}); err != nil {
		rq.w.WriteHeader(http.StatusInternalServerError)
	}
}

// setRetryAfter rounds up to whole seconds; 0 says nothing.
func setRetryAfter(header http.Header, after time.Duration) {
	if after > 0 {
		header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
}

// preconditions checks If-Match and If-None-Match against a resource's ETag; empty means that it does not exist.
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

// matches reports whether a list of ETags has one; `*` has all. A weak one never matches in the strong comparison, which
// If-Match takes, and as if it were strong in the weak one, which If-None-Match takes (RFC 9110, section 8.8.3.2).
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
