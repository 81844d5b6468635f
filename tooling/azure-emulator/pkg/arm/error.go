package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// Error is an error response of ARM.
type Error struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration
}

// Error returns code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// WriteError writes an error response. An error that is not an *Error is an internal error of the emulator.
func WriteError(w http.ResponseWriter, err error) {
	var apiErr *Error
	var denied *rbac.Denied
	switch {
	case errors.As(err, &denied):
		apiErr = &Error{Status: http.StatusForbidden, Code: "AuthorizationFailed", Message: denied.Error() + " If access was recently granted, please refresh your credentials."}
	case !errors.As(err, &apiErr):
		apiErr = &Error{Status: http.StatusInternalServerError, Code: "InternalServerError", Message: "Internal error of the emulator: " + err.Error()}
	}
	if apiErr.RetryAfter > 0 {
		SetRetryAfter(w.Header(), apiErr.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("x-ms-error-code", apiErr.Code)
	w.WriteHeader(apiErr.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": apiErr.Code, "message": apiErr.Message}}) // an error means that the client has disconnected
}

// codeGroupNotFound is the code for a resource group that does not exist.
const codeGroupNotFound = "ResourceGroupNotFound"

// notImplemented returns the error for a part of Azure that is not emulated.
func notImplemented(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotImplemented, Code: "NotImplemented", Message: fmt.Sprintf(format, args...)}
}

// badRequest returns an error with status 400.
func badRequest(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// groupNotFound returns the error for a resource group that does not exist.
func groupNotFound(p *path) *Error {
	return &Error{Status: http.StatusNotFound, Code: codeGroupNotFound, Message: fmt.Sprintf("Resource group '%s' could not be found.", p.group)}
}

// parentNotFound returns the error for a write of a resource whose parent does not exist.
func parentNotFound(p *path, parent string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "ParentResourceNotFound", Message: fmt.Sprintf(
		"Failed to perform '%s' on resource(s) of type '%s', because the parent resource '%s' could not be found.", "write", p.typ, parent)}
}

// inProgress returns the error for a write during an operation on the resource.
func inProgress(r *Resource) *Error {
	return &Error{Status: http.StatusConflict, Code: "AnotherOperationInProgress", RetryAfter: time.Second, Message: fmt.Sprintf(
		"Another operation on this or dependent resource is in progress: %s.", r.ID)}
}

// isNotFound reports whether err is a 404.
func isNotFound(err error) bool {
	var apiErr *Error
	return errors.As(err, &apiErr) && apiErr.Status == http.StatusNotFound
}
