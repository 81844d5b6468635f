package logforwarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// accountVariable stands for the name of the account in Azure.BlobURL.
const accountVariable = "{account}"

// Azure has the settings with which the forwarder connects to Azure.
type Azure struct {
	// ResourceManager is the base URL of Azure Resource Manager.
	ResourceManager string
	// BlobURL is the base URL of Blob Storage with {account} in place of the account's name.
	BlobURL    string
	Credential azcore.TokenCredential
	// Transport is the transport of requests; nil is the SDK's own.
	Transport policy.Transporter
}

// clientOptions returns options for clients that send each request once: a stream retries, and its pauses are longer.
func (a *Azure) clientOptions() policy.ClientOptions {
	return policy.ClientOptions{Transport: a.Transport, Retry: policy.RetryOptions{MaxRetries: -1, TryTimeout: requestTimeout}}
}

// container returns a client of a container of an account. The name of an account cannot contain anything but letters and digits.
func (a *Azure) container(account, name string) (*container.Client, error) {
	url := strings.ReplaceAll(a.BlobURL, accountVariable, account)
	return container.NewClient(strings.TrimSuffix(url, "/")+"/"+name, a.Credential, &container.ClientOptions{ClientOptions: a.clientOptions()})
}

// appendTo appends content to a blob. It creates the container and the blob if they do not exist.
func appendTo(ctx context.Context, c *container.Client, name string, content []byte) error {
	client := c.NewAppendBlobClient(name)
	write := func() error {
		_, err := client.AppendBlock(ctx, streaming.NopCloser(bytes.NewReader(content)), nil)
		return err
	}
	err := write()
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		if _, err := c.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return err
		}
		err = write()
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		any := azcore.ETagAny
		_, err := client.Create(ctx, &appendblob.CreateOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &any}}})
		if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists) {
			return err
		}
		return write()
	}
	return err
}

// deliveryError is the error of a request to Azure, with its cause.
type deliveryError struct {
	fault hostedreport.LogFault
	// reason is the error code of Azure, or a word for a failed connection.
	reason string
	err    error
}

func (e *deliveryError) Error() string {
	return e.reason + " (" + string(e.fault) + "): " + e.err.Error()
}
func (e *deliveryError) Unwrap() error { return e.err }

// refused reports whether the storage will never accept the content of a request.
func refused(err error) bool {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return false
	}
	return response.StatusCode == http.StatusRequestEntityTooLarge || bloberror.HasCode(err, bloberror.RequestBodyTooLarge, bloberror.InvalidInput)
}

// classify adds the cause to the error of a request to a customer's storage. A refusal is the customer's fault only if a change of the account
// resolves it.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var response *azcore.ResponseError
	var dns *net.DNSError
	switch {
	case errors.As(err, &response):
		return &deliveryError{faultOf(response), reasonOf(response), fmt.Errorf("HTTP status %d", response.StatusCode)}
	case errors.As(err, &dns) && dns.IsNotFound:
		return &deliveryError{hostedreport.LogFaultCustomer, "AccountNotFound", errors.New("the name of the account does not resolve")}
	case errors.Is(err, context.DeadlineExceeded):
		return &deliveryError{hostedreport.LogFaultAzure, "Timeout", fmt.Errorf("no response within %s", requestTimeout)}
	}
	return &deliveryError{hostedreport.LogFaultAzure, "Unavailable", err}
}

func faultOf(response *azcore.ResponseError) hostedreport.LogFault {
	switch code := response.StatusCode; {
	case bloberror.HasCode(response, "BlockCountExceedsLimit"):
		return hostedreport.LogFaultService
	case slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusMisdirectedRequest}, code):
		return hostedreport.LogFaultCustomer
	case code == http.StatusTooManyRequests, code >= 500:
		return hostedreport.LogFaultAzure
	}
	return hostedreport.LogFaultService
}

func reasonOf(response *azcore.ResponseError) string {
	if response.ErrorCode != "" {
		return response.ErrorCode
	}
	return http.StatusText(response.StatusCode)
}
