// Package grant issues the tokens of access sessions with the API servers of management clusters and of the service cluster.
//
// A Granter runs in the cluster whose tokens it issues: in a management cluster it is part of the agent of tunnels, and in the service cluster it is the program
// gateway-grants (Main). It issues a token only for the signed intent of an engineer, which it verifies itself, so that the session gateway alone cannot get any.
package grant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	// MaxBody is the maximum size in bytes of the request for a token and of the response.
	MaxBody = 64 << 10
	// maxParameters is more than the size of the parameters of a session in bytes.
	maxParameters = 1 << 10
	// Timeout limits the wait of the session gateway for a token.
	Timeout = 10 * time.Second
	// maxReason is the maximum size in bytes of the reason of a refusal.
	maxReason = 1 << 10
)

// Request requests a token for an API server.
type Request struct {
	// Intent is the signed intent, and Parameters what it has a digest of: an adminv1.AccessSessionRequest.
	Intent     string          `json:"intent"`
	Parameters json.RawMessage `json:"parameters"`
}

// Grant is a token for an API server.
type Grant struct {
	// Token is a secret.
	Token string `json:"token"`
	// Server is the https URL of the API server inside its cluster, and Authorities verify its certificate. PEM.
	Server      string `json:"server"`
	Authorities string `json:"authorities"`
	// ExpirationTime is when the session ends. The token may be valid for longer: API servers issue none for less than 10 minutes.
	ExpirationTime time.Time `json:"expirationTime"`
	// SessionID, ObjectID, TenantID, ElevationID and Mode are those of the verified intent. The gateway compares them with the session, so that nobody
	// uses the intent of another engineer.
	SessionID   string             `json:"sessionId"`
	ObjectID    string             `json:"objectId"`
	TenantID    string             `json:"tenantId"`
	ElevationID string             `json:"elevationId"`
	Mode        adminv1.AccessMode `json:"mode"`
}

// RefusedError is the response of a Granter that has issued no token.
type RefusedError struct {
	// Status is the HTTP status, and Reason is for people.
	Status int
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Reason) }

// final reports whether a repetition of the request is refused as well. A caller without an identity (401) may have one later.
func (e *RefusedError) final() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusUnauthorized || e.Status == http.StatusNotImplemented
}

// RefusalOf returns the *RefusedError of a response. The body of the response is the reason.
func RefusalOf(response *http.Response) error {
	reason, err := io.ReadAll(io.LimitReader(response.Body, maxReason))
	return errors.Join(&RefusedError{response.StatusCode, strings.TrimSpace(string(reason))}, err)
}

// Failure returns the error of a request for a token that failed with err. It is an *apierror.Error of the kind PermissionDenied with the reason of a final refusal,
// and one of the kind Unavailable with a message for everything else.
func Failure(err error, message string) error {
	if refused := new(RefusedError); errors.As(err, &refused) && refused.final() {
		return apierror.New(apierror.PermissionDenied, "%s", refused.Reason).WithCause(err)
	}
	return apierror.New(apierror.Unavailable, "%s", message).WithCause(err)
}

// Post requests a token from the Handler at a URL. If the Handler refuses, the chain of the error contains a *RefusedError.
func Post(ctx context.Context, transport http.RoundTripper, url string, request Request) (*Grant, error) {
	content, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, RefusalOf(response)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, MaxBody))
	if err != nil {
		return nil, err
	}
	issued := &Grant{}
	if json.Unmarshal(answer, issued) != nil || issued.Token == "" || issued.Server == "" {
		return nil, errors.New("the response is not a token") // it may contain one
	}
	return issued, nil
}
