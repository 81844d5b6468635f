// Package adminclient is how hcpctl talks to admin, the SREs' API: one method for each thing that can be asked, in the types
// of api/adminv1, with a token of the engineer whom the caller names. It decides nothing, and prints nothing.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// timeout bounds one request.
const timeout = 60 * time.Second

// Options say where admin is and as whom to talk to it.
type Options struct {
	// Endpoint is admin's URL, Authority the URL of who issues tokens, and CAFile what the certificates of both are
	// verified with.
	Endpoint, Authority, CAFile string
	// CredentialsFile holds the engineers' credentials, Engineer the name of the one to be; empty is the first.
	CredentialsFile, Engineer string
	// Audience is whom tokens are for.
	Audience string
}

// Client talks to one admin. It is safe for concurrent use.
type Client struct {
	options    Options
	http       *http.Client
	credential azcore.TokenCredential

	mu    sync.Mutex
	token azcore.AccessToken
}

// Error is an answer of admin's that is one.
type Error struct {
	// Status is HTTP's; 0 when the request was accepted and Operation, which it began, has failed.
	Status    int
	Operation string
	Detail    adminv1.FailureDetail
}

// Error says what was wrong, and where.
func (e *Error) Error() string {
	text := e.Detail.Message
	if e.Operation != "" {
		text = "operation " + e.Operation + " failed: " + text
	}
	if e.Detail.Target != "" {
		text = e.Detail.Target + ": " + text
	}
	for _, inner := range e.Detail.Details {
		text += "\n  " + inner.Target + ": " + inner.Message
	}
	return text
}

// New makes a client; nothing is connected yet.
func New(options Options) (*Client, error) {
	tlsConfig, err := armclient.TrustOnly(options.CAFile)
	if err != nil {
		return nil, err
	}
	options.Endpoint = strings.TrimSuffix(options.Endpoint, "/")
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: tlsConfig}}
	credential, err := armclient.NewCredential(options.Authority, options.CredentialsFile, options.Engineer, client)
	if err != nil {
		return nil, err
	}
	return &Client{options: options, http: client, credential: credential}, nil
}

// accessToken is a token that is good for a while yet.
func (c *Client) accessToken(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Until(c.token.ExpiresOn) > time.Minute {
		return c.token.Token, nil
	}
	token, err := c.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.options.Audience + "/.default"}})
	if err != nil {
		return "", fmt.Errorf("getting a token for admin, the SREs' API: %w", err)
	}
	c.token = token
	return token.Token, nil
}

// IsRetryable says whether the same request may be answered otherwise later: nobody answered, or admin said that it cannot now.
func IsRetryable(err error) bool {
	var unanswered *unreachableError
	var answered *Error
	if errors.As(err, &answered) {
		return answered.Status >= http.StatusInternalServerError || answered.Status == http.StatusTooManyRequests
	}
	return errors.As(err, &unanswered)
}

// unreachableError is of a request to which no answer came: it may have been heard, or not.
type unreachableError struct{ err error }

// Error says what to do.
func (e *unreachableError) Error() string {
	return fmt.Sprintf("admin, the SREs' API, cannot be reached (%v); is it up? See `hcpctl region status`, and what it wrote: `hcpctl region logs admin`", e.err)
}

// Unwrap gives the failure of the connection.
func (e *unreachableError) Unwrap() error { return e.err }

// do sends a request and decodes the answer into a value; either body may be nil.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	return c.send(ctx, method, path, query, "", body, into)
}

// send is do with an idempotency key, which may be empty.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, key string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	target := c.options.Endpoint + adminv1.Root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return err
	}
	token, err := c.accessToken(ctx)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set(adminv1.IdempotencyKey, key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return &unreachableError{err}
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return &unreachableError{fmt.Errorf("reading its answer: %w", err)}
	}
	if response.StatusCode >= http.StatusBadRequest {
		var failure adminv1.Failure
		if err := json.Unmarshal(answer, &failure); err != nil || failure.Error.Message == "" {
			failure.Error.Message = fmt.Sprintf("admin answered with status %d", response.StatusCode)
		}
		return &Error{Status: response.StatusCode, Detail: failure.Error}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("reading admin's answer: %w", err)
	}
	return nil
}

// get reads one thing.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	found := new(T)
	if err := c.do(ctx, http.MethodGet, path, query, nil, found); err != nil {
		return nil, err
	}
	return found, nil
}

// Me is who the caller is to admin.
func (c *Client) Me(ctx context.Context) (*adminv1.Identity, error) {
	return get[adminv1.Identity](ctx, c, "/me", nil)
}
