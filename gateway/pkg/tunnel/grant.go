package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// APIServer is the authority of CONNECT for the API server of the management cluster itself. It is not the ID of a cluster: those have no hyphen.
const APIServer = "management-cluster"

// GrantPath is the path of the request for a token, a POST in a tunnel.
const GrantPath = "/grants"

const (
	// grantTimeout limits the wait for a token.
	grantTimeout = 10 * time.Second
	// MaxGrantBody is the maximum size in bytes of the request for a token and of the response.
	MaxGrantBody = 64 << 10
)

// GrantRequest requests a token for the API server of a management cluster. The agent issues one only for the signed intent of an engineer, so that the
// gateway alone cannot get any.
type GrantRequest struct {
	// Intent is the signed intent, and Parameters what it has a digest of: an adminv1.AccessSessionRequest.
	Intent     string          `json:"intent"`
	Parameters json.RawMessage `json:"parameters"`
}

// Grant is a token for the API server of a management cluster.
type Grant struct {
	// Token is a secret.
	Token string `json:"token"`
	// Server is the https URL of the API server inside the management cluster, and Authorities verify its certificate. PEM.
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

// Grant requests a token from the agent of a management cluster. The error of a refusal is an *apierror.Error of the kind PermissionDenied, and that of
// everything else one of the kind Unavailable.
func (s *Server) Grant(ctx context.Context, managementCluster string, request GrantRequest) (*Grant, error) {
	content, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	grant := &Grant{}
	err = s.try(ctx, managementCluster, func(t *tunnel) error { return post(ctx, t, content, grant) })
	refused := new(refusedError)
	switch {
	case err == nil:
		return grant, nil
	case errors.As(err, &refused) && refused.final():
		return nil, apierror.New(apierror.PermissionDenied, "%s", refused.reason).WithCause(err)
	case errors.Is(err, ErrNotConnected):
		return nil, apierror.New(apierror.Unavailable, "The management cluster %s has no working tunnel to this gateway.", managementCluster).WithCause(err)
	}
	return nil, apierror.New(apierror.Unavailable, "The agent of management cluster %s does not issue a token now.", managementCluster).WithCause(err)
}

// final reports whether a repetition of the request is refused as well.
func (e *refusedError) final() bool {
	return e.status >= 400 && e.status < 500 || e.status == http.StatusNotImplemented
}

// post sends the request for a token through one tunnel.
func post(ctx context.Context, t *tunnel, content []byte, into *Grant) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+APIServer+GrantPath, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := t.client.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return refusalOf(response)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, MaxGrantBody))
	if err != nil {
		return err
	}
	if json.Unmarshal(answer, into) != nil || into.Token == "" || into.Server == "" {
		return errors.New("the response of the agent is not a token") // it may contain one
	}
	return nil
}
