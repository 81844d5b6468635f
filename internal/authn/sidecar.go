package authn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// checkTimeout bounds one check. The sidecar runs on the same machine.
const checkTimeout = 3 * time.Second

// maxCheckResponse bounds the bytes that are read of a response body, so that the connection can be reused.
const maxCheckResponse = 64 << 10

// Sidecar authenticates requests with a MISE sidecar. It sends the head of each request to the check endpoint and accepts
// the request if the response is 200. The claims in the headers of the response identify the caller.
type Sidecar struct {
	endpoint string
	claims   []string
	client   *http.Client
}

// NewSidecar returns a Sidecar for the URL of a check endpoint, for example http://127.0.0.1:5000/ValidateRequest. Each check requests
// the claims that identify the application and the principal, and also those in claims.
func NewSidecar(endpoint string, claims ...string) (*Sidecar, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is not an http or https URL", endpoint)
	}
	return &Sidecar{endpoint: endpoint, claims: append([]string{"tid", "appid", "oid"}, claims...), client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Authenticate implements Authenticator.
func (s *Sidecar) Authenticate(ctx context.Context, r *http.Request) (Caller, error) {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return Caller{}, reject("", "The request carries no token.", nil)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	check, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, http.NoBody)
	if err != nil {
		return Caller{}, err
	}
	check.Header.Set("Authorization", authorization)
	check.Header.Set("Original-Uri", "https://"+r.Host+r.URL.RequestURI())
	check.Header.Set("Original-Method", r.Method)
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		check.Header.Set("X-Forwarded-For", host)
	}
	for _, claim := range s.claims {
		check.Header.Set("Return-Subject-Token-Claim-"+claim, "1")
	}
	response, err := s.client.Do(check)
	if err != nil {
		return Caller{}, unavailable(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxCheckResponse)
	_ = response.Body.Close()
	switch {
	case response.StatusCode == http.StatusOK:
		return callerOf(response.Header)
	case response.StatusCode == http.StatusForbidden:
		return Caller{}, apierror.New(apierror.PermissionDenied, "The caller may not use this service.")
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests:
		return Caller{}, unavailable(fmt.Errorf("the sidecar responded with status %d", response.StatusCode))
	}
	return Caller{}, reject("invalid_token", "The request's token is not accepted.", fmt.Errorf("the sidecar responded with status %d", response.StatusCode))
}

// unavailable returns the error for a request that cannot be authenticated now.
func unavailable(cause error) error {
	return apierror.New(apierror.Unavailable, "The request cannot be authenticated now.").WithCause(cause).WithRetryAfter(time.Second)
}

// Ready implements Authenticator. It checks that the sidecar accepts connections.
func (s *Sidecar) Ready(ctx context.Context) error {
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return err
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return errors.New("the sidecar that authenticates requests does not accept connections")
	}
	return connection.Close()
}
