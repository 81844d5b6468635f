package grant

import (
	"context"
	"errors"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Client requests tokens from the Handler of the service cluster.
type Client struct {
	url       string
	transport http.RoundTripper
}

// NewClient returns a Client of the Handler at a URL. transport verifies that the server is gateway-grants.
func NewClient(url string, transport http.RoundTripper) *Client { return &Client{url, transport} }

// Grant requests a token. The error of a refusal is an *apierror.Error of the kind PermissionDenied, and that of everything else one of the kind Unavailable.
func (c *Client) Grant(ctx context.Context, request Request) (*Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	issued, err := Post(ctx, c.transport, c.url, request)
	if err == nil {
		return issued, nil
	}
	if refused := new(RefusedError); errors.As(err, &refused) && refused.Final() {
		return nil, apierror.New(apierror.PermissionDenied, "%s", refused.Reason).WithCause(err)
	}
	return nil, apierror.New(apierror.Unavailable, "The service cluster does not issue a token now.").WithCause(err)
}
