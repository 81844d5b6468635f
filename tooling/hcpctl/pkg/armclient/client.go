// Package armclient is hcpctl's client of Azure Resource Manager: the pipeline and pollers of the published SDK, a credential for
// the token issuer of the region, and the paths of resources.
package armclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// APIVersion is the api-version of the resource provider. The others are those of ARM.
const (
	APIVersion      = "2026-09-01-preview"
	groupAPIVersion = "2021-04-01"
	provider        = "Microsoft.RedHatOpenShift"
)

// pollEvery is the polling interval of operations.
const pollEvery = 500 * time.Millisecond

// Options selects an ARM endpoint, a subscription and a resource group.
type Options struct {
	Endpoint        string
	CAFile          string
	CredentialsFile string
	Subscription    string
	Group           string
}

// Client works in one resource group. It is safe for concurrent use.
type Client struct {
	options  Options
	pipeline runtime.Pipeline
}

// Resource is a resource as ARM returns it.
type Resource map[string]any

// New returns a client. It does not connect.
func New(options Options) (*Client, error) {
	connections, err := transport.New(options.CAFile)
	if err != nil {
		return nil, err
	}
	options.Endpoint = strings.TrimSuffix(options.Endpoint, "/")
	client := &http.Client{Transport: connections}
	credential, err := NewCredential(options.Endpoint, options.CredentialsFile, "", client)
	if err != nil {
		return nil, err
	}
	settings := &arm.ClientOptions{ClientOptions: policy.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: options.Endpoint,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: options.Endpoint, Audience: "https://management.azure.com"},
			},
		},
		Transport: refusing{client},
		Retry:     policy.RetryOptions{MaxRetries: 5, RetryDelay: 300 * time.Millisecond, MaxRetryDelay: 3 * time.Second},
	}}
	core, err := arm.NewClient("hcpctl", "v0.0.0", credential, settings)
	if err != nil {
		return nil, err
	}
	return &Client{options: options, pipeline: core.Pipeline()}, nil
}

// refusing disables retries of connections that could not be established.
type refusing struct{ client *http.Client }

func (r refusing) Do(request *http.Request) (*http.Response, error) {
	response, err := r.client.Do(request)
	if failed, ok := errors.AsType[*net.OpError](err); ok && (failed.Op == "dial" || failed.Op == "proxyconnect") {
		return nil, unreachable(err)
	}
	return response, err
}

// GroupID returns the resource ID of the resource group.
func (c *Client) GroupID() string {
	return "/subscriptions/" + c.options.Subscription + "/resourceGroups/" + c.options.Group
}

// ClusterID returns the resource ID of a cluster.
func (c *Client) ClusterID(name string) string {
	return c.GroupID() + "/providers/" + provider + "/hcpOpenShiftClusters/" + name
}

// NodePoolID returns the resource ID of a node pool.
func (c *Client) NodePoolID(cluster, name string) string {
	return c.ClusterID(cluster) + "/nodePools/" + name
}

// ExternalAuthID returns the resource ID of an external authentication.
func (c *Client) ExternalAuthID(cluster, name string) string {
	return c.ClusterID(cluster) + "/externalAuths/" + name
}

// Do sends a request through the pipeline and decodes the response. It adds the api-version of the resource provider to a path
// without one.
func (c *Client) Do(ctx context.Context, method, path string, body any) (Resource, error) {
	decoded, _, err := c.do(ctx, method, path, body)
	return decoded, err
}

// do is Do, which also returns the header of the response.
func (c *Client) do(ctx context.Context, method, path string, body any) (Resource, http.Header, error) {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	data, err := runtime.Payload(response)
	if err != nil || len(data) == 0 {
		return nil, response.Header, err
	}
	var decoded Resource
	if err := json.Unmarshal(data, &decoded); err != nil {
		return nil, nil, fmt.Errorf("reading the response of ARM: %w", err)
	}
	return decoded, response.Header, nil
}

// send is Do, which returns the response. The body may be nil.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	if !strings.Contains(path, "api-version=") {
		path += "?api-version=" + APIVersion
	}
	if !strings.HasPrefix(path, "https://") {
		path = c.options.Endpoint + path
	}
	request, err := runtime.NewRequest(ctx, method, path)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(request, body); err != nil {
			return nil, err
		}
	}
	response, err := c.pipeline.Do(request)
	if err != nil {
		return nil, Explain(err)
	}
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent) {
		return nil, Explain(runtime.NewResponseError(response))
	}
	return response, nil
}

// Get returns a resource by its ID.
func (c *Client) Get(ctx context.Context, id string) (Resource, error) {
	return c.Do(ctx, http.MethodGet, id, nil)
}

// GetWithETag returns a resource by its ID, and its ETag; empty if the service has none.
func (c *Client) GetWithETag(ctx context.Context, id string) (Resource, string, error) {
	resource, header, err := c.do(ctx, http.MethodGet, id, nil)
	return resource, header.Get("ETag"), err
}

// List returns all pages of a list.
func (c *Client) List(ctx context.Context, path string) ([]Resource, error) {
	all := []Resource{}
	for path != "" {
		page, err := c.Do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return nil, err
		}
		values, _ := page["value"].([]any)
		for _, value := range values {
			if resource, ok := value.(map[string]any); ok {
				all = append(all, resource)
			}
		}
		path, _ = page["nextLink"].(string)
	}
	return all, nil
}

// Clusters returns the clusters of the resource group, or of the whole subscription.
func (c *Client) Clusters(ctx context.Context, everywhere bool) ([]Resource, error) {
	scope := c.GroupID()
	if everywhere {
		scope = "/subscriptions/" + c.options.Subscription
	}
	return c.List(ctx, scope+"/providers/"+provider+"/hcpOpenShiftClusters")
}

// Versions returns the OpenShift versions that a region offers.
func (c *Client) Versions(ctx context.Context, location string) ([]Resource, error) {
	return c.List(ctx, "/subscriptions/"+c.options.Subscription+"/providers/"+provider+"/locations/"+location+"/hcpOpenShiftVersions")
}

// Operation is an asynchronous operation in progress.
type Operation interface {
	// ID returns the ID of the operation; empty if ARM completed the request at once.
	ID() string
	Done() bool
	Poll(ctx context.Context) (*http.Response, error)
	// Finish returns the error of the operation, if it failed.
	Finish(ctx context.Context) error
}

type operation struct {
	*runtime.Poller[json.RawMessage]
	response *http.Response
	// into gets the result; may be nil.
	into any
}

// ID implements Operation: the last segment of the URL of the operation's status.
func (o operation) ID() string {
	status, err := url.Parse(o.response.Header.Get("Azure-AsyncOperation"))
	if err != nil {
		return ""
	}
	return status.Path[strings.LastIndexByte(status.Path, '/')+1:]
}

func (o operation) Finish(ctx context.Context) error {
	result, err := o.Result(ctx)
	if err != nil || o.into == nil {
		return Explain(err)
	}
	if err := json.Unmarshal(result, o.into); err != nil {
		return fmt.Errorf("reading the action's result: %w", err)
	}
	return nil
}

// begin sends a request that starts an operation.
func (c *Client) begin(ctx context.Context, method, path string, header http.Header, body, into any) (Operation, error) {
	response, err := c.send(policy.WithHTTPHeader(ctx, header), method, path, body)
	if err != nil {
		return nil, err
	}
	if method == http.MethodDelete && response.StatusCode == http.StatusNoContent {
		return nil, &Failed{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: path + " does not exist."}
	}
	poller, err := runtime.NewPoller(response, c.pipeline, &runtime.NewPollerOptions[json.RawMessage]{FinalStateVia: runtime.FinalStateViaLocation})
	if err != nil {
		return nil, Explain(err)
	}
	return operation{poller, response, into}, nil
}

// Create starts to create a resource. The request is accepted only if the resource does not exist.
func (c *Client) Create(ctx context.Context, id string, body Resource) (Operation, error) {
	if err := checkFields(body); err != nil {
		return nil, err
	}
	return c.begin(ctx, http.MethodPut, id, http.Header{"If-None-Match": {"*"}}, body, nil)
}

// Patch starts to update a resource with a merge patch (RFC 7396). With an ETag, the request is accepted only if the resource still has it.
func (c *Client) Patch(ctx context.Context, id string, body Resource, etag string) (Operation, error) {
	if err := checkFields(body); err != nil {
		return nil, err
	}
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	return c.begin(ctx, http.MethodPatch, id, header, body, nil)
}

// Delete starts to delete a resource. ARM accepts the deletion of a resource that does not exist; Delete returns an error for it.
func (c *Client) Delete(ctx context.Context, id string) (Operation, error) {
	return c.begin(ctx, http.MethodDelete, id, nil, nil, nil)
}

// Act starts an action on a resource. The result is decoded into into when the operation ends.
func (c *Client) Act(ctx context.Context, id, action string, body, into any) (Operation, error) {
	return c.begin(ctx, http.MethodPost, id+"/"+action, nil, body, into)
}

// envelope are the fields that ARM has for resources of all types.
var envelope = []string{"extendedLocation", "id", "identity", "kind", "location", "managedBy", "name", "plan", "properties", "sku", "systemData", "tags", "type"}

// checkFields rejects fields that no resource has.
func checkFields(body Resource) error {
	for field := range body {
		if !slices.Contains(envelope, field) {
			return fmt.Errorf("unknown field %q in the resource", field)
		}
	}
	return nil
}

// Await polls an operation until it ends. It calls observe after each poll with the resource, or with nil if the resource cannot
// be read.
func (c *Client) Await(ctx context.Context, o Operation, id string, observe func(Resource)) error {
	for !o.Done() {
		if _, err := o.Poll(ctx); err != nil {
			return Explain(err)
		}
		current, err := c.Get(ctx, id)
		if err != nil {
			current = nil
		}
		observe(current)
		if o.Done() {
			break
		}
		if err := backoff.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
	return o.Finish(ctx)
}

// Ensure creates the subscription, its registration and the resource group if they do not exist.
func (c *Client) Ensure(ctx context.Context, location string) error {
	subscription := "/subscriptions/" + c.options.Subscription
	steps := []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, subscription + "?api-version=2022-12-01", Resource{"displayName": "Local development"}},
		{http.MethodPost, subscription + "/providers/" + provider + "/register?api-version=" + groupAPIVersion, nil},
		{http.MethodPut, c.GroupID() + "?api-version=" + groupAPIVersion, Resource{"location": location}},
	}
	for _, step := range steps {
		if _, err := c.Do(ctx, step.method, step.path, step.body); err != nil {
			return fmt.Errorf("preparing the subscription and the resource group: %w", err)
		}
	}
	return nil
}

// IsNotFound reports whether ARM responded that a resource does not exist.
func IsNotFound(err error) bool {
	return hasStatus(err, http.StatusNotFound)
}

// IsPreconditionFailed reports whether ARM responded that the condition of a request does not hold.
func IsPreconditionFailed(err error) bool {
	return hasStatus(err, http.StatusPreconditionFailed)
}

func hasStatus(err error, status int) bool {
	failed, ok := errors.AsType[*Failed](err)
	return ok && failed.Status == status
}

// Failed is an error response of ARM.
type Failed struct {
	Status  int      `json:"-"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Target  string   `json:"target"`
	Details []Failed `json:"details"`
}

// Error returns one line, and one more for each detail.
func (f *Failed) Error() string {
	text := f.Code
	if f.Message != "" {
		text += ": " + f.Message
	}
	if f.Target != "" && len(f.Details) == 0 {
		text = f.Target + ": " + text
	}
	for i := range f.Details {
		text += "\n  " + f.Details[i].Error()
	}
	return text
}

// Explain converts an error of the SDK, which contains the whole exchange, to a short error.
func Explain(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return err
	}
	failed := &Failed{Status: response.StatusCode, Code: response.ErrorCode}
	data, readErr := runtime.Payload(response.RawResponse)
	var decoded struct {
		Error *Failed `json:"error"`
	}
	if readErr == nil && json.Unmarshal(data, &decoded) == nil && decoded.Error != nil {
		failed = decoded.Error
		failed.Status = response.StatusCode
	}
	if failed.Code == "" {
		failed.Code = http.StatusText(response.StatusCode)
	}
	return failed
}
