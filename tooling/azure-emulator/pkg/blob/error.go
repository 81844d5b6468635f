package blob

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
)

// apiError is an error response of Blob Storage.
type apiError struct {
	status        int
	code, message string
}

// Error returns code and message.
func (e *apiError) Error() string { return e.code + ": " + e.message }

// newError returns an error response with a formatted message.
func newError(status int, code, format string, args ...any) error {
	return &apiError{status, code, fmt.Sprintf(format, args...)}
}

// WriteError writes an error response.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header) // an error means that the client has disconnected
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: code, Message: message})
}
