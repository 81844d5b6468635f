package kubeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxHealthBody bounds the response of a health endpoint in bytes.
const maxHealthBody = 64 << 10

// NotReadyError is the error of an API server that responds and reports that it is not ready.
type NotReadyError struct {
	// Checks are the names of the failed checks, for example etcd.
	Checks []string
	// Status is the HTTP status.
	Status int
}

// Error returns a message that names the failed checks.
func (e *NotReadyError) Error() string {
	if len(e.Checks) == 0 {
		return fmt.Sprintf("the API server responds to /readyz with status %d", e.Status)
	}
	return "the API server is not ready: failed checks: " + strings.Join(e.Checks, ", ")
}

// unreachedError hides the addresses in its cause from people, and shows the cause to programs.
type unreachedError struct{ cause error }

func (e *unreachedError) Error() string { return "the API server cannot be reached" }

func (e *unreachedError) Unwrap() error { return e.cause }

// CheckReady returns nil if the API server at the URL reports that it is ready, which includes that it reaches its etcd. The error is a
// NotReadyError if it reports that it is not; after any other error it did not respond. The caller sets the deadline in the context.
func CheckReady(ctx context.Context, client *http.Client, server string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("the API server does not respond: %w", ctx.Err())
		}
		return &unreachedError{err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHealthBody))
	if response.StatusCode == http.StatusOK && err == nil {
		return nil
	}
	return &NotReadyError{Checks: failedChecks(string(body)), Status: response.StatusCode}
}

// failedChecks returns the names of the failed checks in a verbose response, whose lines are like "[-]etcd failed: reason withheld".
func failedChecks(body string) []string {
	var failed []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			failed = append(failed, name)
		}
	}
	return failed
}
