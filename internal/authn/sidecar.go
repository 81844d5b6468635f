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

// checkTimeout bounds one check; the sidecar is on the same machine.
const checkTimeout = 3 * time.Second

// maxCheckAnswer bounds what is read of an answer, so that its connection can be used again.
const maxCheckAnswer = 64 << 10

// Sidecar asks a MISE sidecar: it sends the head of a request to the check endpoint, as the sidecar's protocol has it, and
// lets the request in on 200. The claims that the sidecar hands back name the caller.
type Sidecar struct {
	endpoint string
	client   *http.Client
}

// NewSidecar makes a Sidecar of the check endpoint's URL, as in http://127.0.0.1:5000/ValidateRequest.
func NewSidecar(endpoint string) (*Sidecar, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is not an http or https URL", endpoint)
	}
	return &Sidecar{endpoint: endpoint, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// The claims that are asked for.
var sidecarClaims = [...]string{"tid", "appid", "oid"}

// Authenticate implements Authenticator.
func (s *Sidecar) Authenticate(ctx context.Context, r *http.Request) (Caller, error) {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return Caller{}, refuse("", "The request carries no token.", nil)
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
	for _, claim := range sidecarClaims {
		check.Header.Set("Return-Subject-Token-Claim-"+claim, "1")
	}
	response, err := s.client.Do(check)
	if err != nil {
		return Caller{}, undecided(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxCheckAnswer)
	_ = response.Body.Close()
	claim := func(name string) string { return response.Header.Get("Subject-Token-Claim-" + name) }
	switch {
	case response.StatusCode == http.StatusOK:
		return Caller{TenantID: claim("tid"), AppID: claim("appid"), ObjectID: claim("oid")}, nil
	case response.StatusCode == http.StatusForbidden:
		return Caller{}, apierror.New(apierror.PermissionDenied, "The caller may not use this service.")
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests:
		return Caller{}, undecided(fmt.Errorf("the sidecar answered %d", response.StatusCode))
	}
	return Caller{}, refuse("invalid_token", "The request's token is not accepted.", fmt.Errorf("the sidecar answered %d", response.StatusCode))
}

// undecided lets nobody in.
func undecided(cause error) error {
	return apierror.New(apierror.Unavailable, "The request cannot be authenticated now.").WithCause(cause).WithRetryAfter(time.Second)
}

// Ready implements Authenticator: whether the sidecar takes connections.
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
		return errors.New("the sidecar that authenticates requests takes no connections")
	}
	return connection.Close()
}
