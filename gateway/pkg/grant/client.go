package grant

import (
	"context"
	"net/http"
)

// Client requests tokens from the Handler of the service cluster.
type Client struct {
	url       string
	transport http.RoundTripper
}

// NewClient returns a Client of the Handler at a URL. transport verifies that the server is gateway-grants.
func NewClient(url string, transport http.RoundTripper) *Client { return &Client{url, transport} }

// Grant requests a token. Its errors are those of Failure.
func (c *Client) Grant(ctx context.Context, request Request) (*Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	issued, err := Post(ctx, c.transport, c.url, request)
	if err != nil {
		return nil, Failure(err, "The service cluster does not issue a token now.")
	}
	return issued, nil
}
