// Package armclient is how hcpctl talks to Azure Resource Manager: the published SDK's pipeline and pollers, a credential
// that the region's front door issues tokens for, and the paths of the resources. It knows nothing of what is behind ARM.
package armclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

// APIVersion of the resource provider that hcpctl speaks, and of ARM itself.
const (
	APIVersion      = "2026-09-01-preview"
	groupAPIVersion = "2021-04-01"
	provider        = "Microsoft.RedHatOpenShift"
)

// pollEvery is how often an operation is asked after; a region on this machine answers at once.
const pollEvery = 500 * time.Millisecond

// Options say where ARM is and where in it to work.
type Options struct {
	Endpoint        string
	CAFile          string
	CredentialsFile string
	Subscription    string
	Group           string
}

// Client works in one resource group.
type Client struct {
	options   Options
	pipeline  runtime.Pipeline
	resources *armresources.Client
}

// Resource is a resource as ARM shows it.
type Resource map[string]any

// New makes a client; nothing is connected yet.
func New(options Options) (*Client, error) {
	tlsConfig, err := TrustOnly(options.CAFile)
	if err != nil {
		return nil, err
	}
	options.Endpoint = strings.TrimSuffix(options.Endpoint, "/")
	transport := &http.Client{Transport: &http.Transport{
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
	}}
	credential, err := NewCredential(options.Endpoint, options.CredentialsFile, "", transport)
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
		Transport: refusing{transport},
		Retry:     policy.RetryOptions{MaxRetries: 5, RetryDelay: 300 * time.Millisecond, MaxRetryDelay: 3 * time.Second},
	}}
	core, err := arm.NewClient("hcpctl", "v0.0.0", credential, settings)
	if err != nil {
		return nil, err
	}
	generic, err := armresources.NewClient(options.Subscription, credential, settings)
	if err != nil {
		return nil, err
	}
	return &Client{options: options, pipeline: core.Pipeline(), resources: generic}, nil
}

// TrustOnly verifies servers with the certificates of a file, and with no others.
func TrustOnly(file string) (*tls.Config, error) {
	authority, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the region's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// refusing does not have a connection retried that could not be made.
type refusing struct{ client *http.Client }

func (r refusing) Do(request *http.Request) (*http.Response, error) {
	response, err := r.client.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) && strings.Contains(failed.Err.Error(), "connection refused") {
		return nil, unreachable(err)
	}
	return response, err
}

// GroupID is the resource group's id.
func (c *Client) GroupID() string {
	return "/subscriptions/" + c.options.Subscription + "/resourceGroups/" + c.options.Group
}

// ClusterID is a cluster's id.
func (c *Client) ClusterID(name string) string {
	return c.GroupID() + "/providers/" + provider + "/hcpOpenShiftClusters/" + name
}

// NodePoolID is a node pool's id.
func (c *Client) NodePoolID(cluster, name string) string {
	return c.ClusterID(cluster) + "/nodePools/" + name
}

// ExternalAuthID is the id of an external authentication.
func (c *Client) ExternalAuthID(cluster, name string) string {
	return c.ClusterID(cluster) + "/externalAuths/" + name
}

// Do sends a request through ARM's pipeline and decodes the answer. The api-version of the resource provider is added to
// a path without one.
func (c *Client) Do(ctx context.Context, method, path string, body any) (Resource, error) {
	if !strings.Contains(path, "api-version=") {
		path += "?api-version=" + APIVersion
	}
	target := path
	if !strings.HasPrefix(path, "https://") {
		target = c.options.Endpoint + path
	}
	request, err := runtime.NewRequest(ctx, method, target)
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
	data, err := runtime.Payload(response)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var decoded Resource
	if err := json.Unmarshal(data, &decoded); err != nil {
		return nil, fmt.Errorf("reading ARM's answer: %w", err)
	}
	return decoded, nil
}

// Get reads a resource by its id.
func (c *Client) Get(ctx context.Context, id string) (Resource, error) {
	return c.Do(ctx, http.MethodGet, id, nil)
}

// List reads all pages of a list.
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

// Clusters lists the clusters of the resource group, or of the whole subscription.
func (c *Client) Clusters(ctx context.Context, everywhere bool) ([]Resource, error) {
	scope := c.GroupID()
	if everywhere {
		scope = "/subscriptions/" + c.options.Subscription
	}
	return c.List(ctx, scope+"/providers/"+provider+"/hcpOpenShiftClusters")
}

// Versions lists the OpenShift versions that a region offers.
func (c *Client) Versions(ctx context.Context, location string) ([]Resource, error) {
	return c.List(ctx, "/subscriptions/"+c.options.Subscription+"/providers/"+provider+"/locations/"+location+"/hcpOpenShiftVersions")
}

// Operation is an asynchronous operation under way.
type Operation interface {
	Done() bool
	Poll(ctx context.Context) (*http.Response, error)
	// Finish returns the operation's error, if it ended with one.
	Finish(ctx context.Context) error
}

type operation[T any] struct{ *runtime.Poller[T] }

func (o operation[T]) Finish(ctx context.Context) error {
	_, err := o.Result(ctx)
	return Explain(err)
}

// Put begins to create or replace a resource.
func (c *Client) Put(ctx context.Context, id string, body Resource) (Operation, error) {
	generic, err := asGeneric(body)
	if err != nil {
		return nil, err
	}
	poller, err := c.resources.BeginCreateOrUpdateByID(ctx, id, APIVersion, generic, nil)
	if err != nil {
		return nil, Explain(err)
	}
	return operation[armresources.ClientCreateOrUpdateByIDResponse]{poller}, nil
}

// Patch begins to change a resource.
func (c *Client) Patch(ctx context.Context, id string, body Resource) (Operation, error) {
	generic, err := asGeneric(body)
	if err != nil {
		return nil, err
	}
	poller, err := c.resources.BeginUpdateByID(ctx, id, APIVersion, generic, nil)
	if err != nil {
		return nil, Explain(err)
	}
	return operation[armresources.ClientUpdateByIDResponse]{poller}, nil
}

// Delete begins to delete a resource.
func (c *Client) Delete(ctx context.Context, id string) (Operation, error) {
	poller, err := c.resources.BeginDeleteByID(ctx, id, APIVersion, nil)
	if err != nil {
		return nil, Explain(err)
	}
	return operation[armresources.ClientDeleteByIDResponse]{poller}, nil
}

// Act begins an action on a resource; into gets the result of one that has any, when the operation is finished.
func (c *Client) Act(ctx context.Context, id, action string, body, into any) (Operation, error) {
	request, err := runtime.NewRequest(ctx, http.MethodPost, c.options.Endpoint+id+"/"+action+"?api-version="+APIVersion)
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
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusAccepted) {
		return nil, Explain(runtime.NewResponseError(response))
	}
	poller, err := runtime.NewPoller(response, c.pipeline, &runtime.NewPollerOptions[json.RawMessage]{FinalStateVia: runtime.FinalStateViaLocation})
	if err != nil {
		return nil, Explain(err)
	}
	return acting{operation[json.RawMessage]{poller}, into}, nil
}

// acting is an action with its result.
type acting struct {
	operation[json.RawMessage]
	into any
}

func (a acting) Finish(ctx context.Context) error {
	result, err := a.Result(ctx)
	if err != nil || a.into == nil {
		return Explain(err)
	}
	if err := json.Unmarshal(result, a.into); err != nil {
		return fmt.Errorf("reading the action's result: %w", err)
	}
	return nil
}

// asGeneric makes the SDK's generic resource of a body.
func asGeneric(body Resource) (armresources.GenericResource, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return armresources.GenericResource{}, err
	}
	var generic armresources.GenericResource
	if err := json.Unmarshal(data, &generic); err != nil {
		return armresources.GenericResource{}, fmt.Errorf("the resource is not one that ARM has: %w", err)
	}
	return generic, noneLost(body, generic)
}

// noneLost refuses a field of the body that the SDK's type does not carry; it would be left out without a word.
func noneLost(body Resource, generic armresources.GenericResource) error {
	data, err := json.Marshal(generic)
	if err != nil {
		return err
	}
	var kept map[string]any
	if err := json.Unmarshal(data, &kept); err != nil {
		return err
	}
	for field := range body {
		if _, ok := kept[field]; !ok && field != "systemData" { // which is read-only
			return fmt.Errorf("unknown field %q in the resource", field)
		}
	}
	return nil
}

// Await polls an operation until it ended, and calls observe with the resource's state after each poll: nil when it
// cannot be read.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	return o.Finish(ctx)
}

// Ensure makes the subscription, its registration and the resource group, where they are missing.
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

// IsNotFound reports whether ARM answered that the resource does not exist.
func IsNotFound(err error) bool {
	var failed *Failed
	return errors.As(err, &failed) && failed.Status == http.StatusNotFound
}

// Failed is an error that ARM answered.
type Failed struct {
	Status  int
	Code    string
	Message string
	Target  string
	Details []Failed
}

// Error is one line, and one more for each detail.
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

// Explain makes a short error of the SDK's, which tells the whole conversation.
func Explain(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return err
	}
	failed := &Failed{Status: response.StatusCode, Code: response.ErrorCode}
	data, readErr := runtime.Payload(response.RawResponse)
	var decoded struct {
		Error *wireError `json:"error"`
	}
	if readErr == nil && json.Unmarshal(data, &decoded) == nil && decoded.Error != nil {
		*failed = decoded.Error.failed(response.StatusCode)
	}
	if failed.Code == "" {
		failed.Code = http.StatusText(response.StatusCode)
	}
	return failed
}

type wireError struct {
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Target  string      `json:"target"`
	Details []wireError `json:"details"`
}

func (w *wireError) failed(status int) Failed {
	f := Failed{Status: status, Code: w.Code, Message: w.Message, Target: w.Target}
	for i := range w.Details {
		f.Details = append(f.Details, w.Details[i].failed(status))
	}
	return f
}
