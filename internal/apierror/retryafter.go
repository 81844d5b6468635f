package apierror

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfterSeconds returns a pause in whole seconds, rounded up, as the header Retry-After has it (RFC 9110, section 10.2.3).
func RetryAfterSeconds(pause time.Duration) int { return int((pause + time.Second - 1) / time.Second) }

// SetRetryAfter sets the header Retry-After. It sets nothing for 0.
func SetRetryAfter(header http.Header, pause time.Duration) {
	if pause > 0 {
		header.Set("Retry-After", strconv.Itoa(RetryAfterSeconds(pause)))
	}
}
