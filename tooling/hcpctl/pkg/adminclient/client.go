// Package adminclient is hcpctl's client of admin: Get and List send the reads and Act the actions that package adminv1 declares, with a
// token of the selected engineer.
package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// timeout limits one request.
const timeout = 60 * time.Second

// Options selects an admin and the engineer to act as.
type Options struct {
	// Endpoint is the URL of admin, Authority the URL of the token issuer, and CAFile the certificate authority of both; empty trusts those
	// of the system.
	Endpoint, Authority, CAFile string
	// Credential supplies the tokens of a person who signed in with hcpctl.
	Credential azcore.TokenCredential
	// Without Credential, CredentialsFile holds the credentials of engineers. Engineer is the name of one of them; empty selects the first. Without
	// either, tokens are those of the person who is signed in to the Azure CLI.
	CredentialsFile, Engineer string
	// Audience is the audience of tokens for admin.
	Audience string
}

// Client is a client of one admin. It is safe for concurrent use.
type Client struct {
	options  Options
	http     *http.Client
	pipeline runtime.Pipeline
	// credential issues the tokens of the engineer.
	credential azcore.TokenCredential
}

// Error is an error response of admin, or the failure of an operation.
type Error struct {
	// Status is the HTTP status; 0 if Operation was accepted and has failed.
	Status    int
	Operation string
	Detail    adminv1.FailureDetail
}

// Error implements error.
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

// NotFound reports whether the object of the request or of the operation does not exist.
func (e *Error) NotFound() bool {
	return e.Status == http.StatusNotFound || e.Operation != "" && e.Detail.Code == apierror.NotFound.ARMCode()
}

// New returns a client. It does not connect.
func New(options Options) (*Client, error) {
	connections, err := transport.New(options.CAFile)
	if err != nil {
		return nil, err
	}
	options.Endpoint = strings.TrimSuffix(options.Endpoint, "/")
	client := &http.Client{Timeout: timeout, Transport: connections}
	credential, err := newCredential(options, client)
	if err != nil {
		return nil, err
	}
	return &Client{options: options, http: client, pipeline: newPipeline(credential, options.Audience, client), credential: credential}, nil
}

// Token returns a token of the engineer, which admin and the session gateway accept.
func (c *Client) Token(ctx context.Context) (azcore.AccessToken, error) {
	return tokenSource{c.credential}.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.options.Audience + "/.default"}})
}

// CloseIdleConnections closes the connections that have no request. A process that creates many clients calls it after the last request
// of each: a connection stays open until then, or until the server closes it.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// IsRetryable reports whether the same request may succeed later: admin was unreachable or unavailable.
func IsRetryable(err error) bool {
	var unanswered *unreachableError
	var answered *Error
	if errors.As(err, &answered) {
		return answered.Status >= http.StatusInternalServerError || answered.Status == http.StatusTooManyRequests
	}
	return errors.As(err, &unanswered)
}

// unreachableError reports a request without a response. Admin may have received it.
type unreachableError struct{ err error }

// Error implements error.
func (e *unreachableError) Error() string {
	return fmt.Sprintf("admin is unreachable (%v); check `hcpctl region status` and `hcpctl region logs admin`", e.err)
}

// Unwrap returns the error of the connection.
func (e *unreachableError) Unwrap() error { return e.err }

// send sends a request with an idempotency key, which may be empty, and decodes the response. Either body may be nil.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, key string, body, into any) error {
	target := c.options.Endpoint + adminv1.Root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := runtime.NewRequest(ctx, method, target)
	if err != nil {
		return err
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(request, body); err != nil {
			return err
		}
	}
	if key != "" {
		request.Raw().Header.Set(adminv1.IdempotencyKey, key)
	}
	response, err := c.pipeline.Do(request)
	if err != nil {
		return requestError(err)
	}
	answer, err := runtime.Payload(response)
	if err != nil {
		return &unreachableError{fmt.Errorf("reading the response: %w", err)}
	}
	if response.StatusCode >= http.StatusBadRequest {
		return c.failure(response.StatusCode, answer)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("reading the response of admin: %w", err)
	}
	return nil
}

// failure returns the error of a response with a status of failure.
func (c *Client) failure(status int, answer []byte) error {
	var failure adminv1.Failure
	if err := json.Unmarshal(answer, &failure); err != nil || failure.Error.Message == "" {
		failure.Error.Message = fmt.Sprintf("admin answered with status %d", status)
	}
	if status == http.StatusUnauthorized && c.options.Credential != nil {
		failure.Error.Message += " You use a login: run `hcpctl login` to sign in again, or `hcpctl logout` to remove it."
	}
	return &Error{Status: status, Detail: failure.Error}
}

// requestError returns the error of a request without a response.
func requestError(err error) error {
	if missing, ok := errors.AsType[*tokenError](err); ok {
		return missing
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return &unreachableError{err}
}

// Query is the query parameters of a read by name: texts, flags, times, durations and lists of texts. Zero values are left out.
type Query map[string]any

func (q Query) encode() url.Values {
	values := url.Values{}
	for name, value := range q {
		var text string
		switch v := value.(type) {
		case []string:
			text = strings.Join(v, ",")
		case time.Time:
			text = v.UTC().Format(time.RFC3339)
		default:
			text = fmt.Sprint(v)
		}
		if text != "" && !reflect.ValueOf(value).IsZero() {
			values.Set(name, text)
		}
	}
	return values
}

// Get reads a route. values are those of the wildcards of its path, in order.
func Get[R any](ctx context.Context, c *Client, read adminv1.ReadOf[R], query Query, values ...string) (*R, error) {
	found := new(R)
	if err := c.send(ctx, http.MethodGet, read.Target(values...), query.encode(), "", nil, found); err != nil {
		return nil, err
	}
	return found, nil
}

// mostPerPage is the maximum page size of admin.
const mostPerPage = 500

// List reads the pages of a route up to limit items. It returns whether there are more.
func List[L interface{ Page() ([]T, string) }, T any](ctx context.Context, c *Client, read adminv1.ReadOf[L], query Query, limit int, values ...string) (all []T, more bool, err error) {
	all, query = []T{}, maps.Clone(query)
	if query == nil {
		query = Query{}
	}
	for {
		query["pageSize"] = min(max(limit-len(all), 1), mostPerPage)
		page, err := Get(ctx, c, read, query, values...)
		if err != nil {
			return nil, false, err
		}
		items, next := (*page).Page()
		all = append(all, items...)
		if next == "" || len(all) >= limit {
			return all, next != "", nil
		}
		query["pageToken"] = next
	}
}

// Clusters returns all clusters of the fleet, or of a subscription unless it is empty.
func (c *Client) Clusters(ctx context.Context, subscription string) ([]adminv1.Cluster, error) {
	all, _, err := List(ctx, c, adminv1.ReadClusters, Query{"subscription": subscription}, math.MaxInt)
	return all, err
}
