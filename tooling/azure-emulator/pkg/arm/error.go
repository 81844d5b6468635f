package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is a refusal, as ARM writes it.
type Error struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// WriteError answers with an error. One that is not an *Error is the emulator's own trouble.
func WriteError(w http.ResponseWriter, err error) {
	var refused *Error
	if !errors.As(err, &refused) {
		refused = &Error{Status: http.StatusInternalServerError, Code: "InternalServerError", Message: "The emulator is in trouble: " + err.Error()}
	}
	if refused.RetryAfter > 0 {
		SetRetryAfter(w.Header(), refused.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("x-ms-error-code", refused.Code)
	w.WriteHeader(refused.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": refused.Code, "message": refused.Message}}) // the client is gone
}

// codeNoGroup is the code for a resource group that is not there.
const codeNoGroup = "ResourceGroupNotFound"

func notImplemented(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotImplemented, Code: "NotImplemented", Message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func groupNotFound(p *path) *Error {
	return &Error{Status: http.StatusNotFound, Code: codeNoGroup, Message: fmt.Sprintf("Resource group '%s' could not be found.", p.group)}
}

func parentNotFound(p *path, parent string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "ParentResourceNotFound", Message: fmt.Sprintf(
		"Failed to perform '%s' on resource(s) of type '%s', because the parent resource '%s' could not be found.", "write", p.typ, parent)}
}

func inProgress(r *Resource) *Error {
	return &Error{Status: http.StatusConflict, Code: "AnotherOperationInProgress", RetryAfter: time.Second, Message: fmt.Sprintf(
		"Another operation on this or dependent resource is in progress: %s.", r.ID)}
}

func isAbsent(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}
