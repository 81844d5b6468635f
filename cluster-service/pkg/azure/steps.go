package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// ownerTag is the tag with the UID of the cluster that owns a resource. A name alone does not identify the owner.
const ownerTag = "hcpmesh-cluster"

// Steps attempts the steps of a cluster's Azure resources.
type Steps struct {
	Clients Clients
	// Capacity reads what Azure Compute offers, for the step fleet.AzureRequirements.
	Capacity *Capacity
	Region   fleet.Region
	Config   config.AzureResources
	// Location is the Azure region of the clusters.
	Location string
	// Open decrypts the sealed signing key of a cluster.
	Open func(owner string, sealed []byte) ([]byte, error)
	// Now returns the time that decides whether a certificate must be renewed.
	Now func() time.Time
}

// maxError is the maximum length of a stored error, in bytes.
const maxError = 512

// Try attempts a step of a cluster: it creates what is missing, or deletes what exists when the cluster's resources are being
// deleted.
func (s *Steps) Try(ctx context.Context, t *fleet.ClusterAggregate, step *fleet.AzureStep) fleet.AzureOutcome {
	input, _ := s.Region.AzureInput(t, step.Kind)
	a := &attempt{Steps: s, cluster: t.Cluster, azure: t.Azure, step: step, needs: t.PoolNeeds, servers: nameServers(t.Azure), outcome: fleet.AzureOutcome{Kind: step.Kind, Undo: t.Azure.Deleting, Input: input, Requests: step.Requests}}
	run := a.create
	if t.Azure.Deleting {
		run = a.remove
	}
	if err := run(ctx); err != nil {
		a.outcome.Done, a.outcome.Awaited = false, ""
		a.outcome.Error, a.outcome.RetryAfter = describe(err), retryAfter(err)
	}
	return a.outcome
}

// attempt is one attempt of a step.
type attempt struct {
	*Steps
	cluster *fleet.Cluster
	azure   *fleet.Azure
	step    *fleet.AzureStep
	needs   func() []fleet.PoolNeed
	// servers are the name servers of the cluster's zone, separated by commas.
	servers string
	outcome fleet.AzureOutcome
}

func (a *attempt) create(ctx context.Context) error {
	switch a.step.Kind {
	case fleet.AzureIdentities:
		return a.readIdentities(ctx)
	case fleet.AzureResourceGroup:
		return a.createGroup(ctx)
	case fleet.AzureDNSZone:
		return a.createZone(ctx)
	case fleet.AzureDNSDelegation:
		return a.createDelegation(ctx)
	case fleet.AzureDocuments:
		return a.publishDocuments(ctx)
	case fleet.AzureSecurityGroup:
		return a.associate(ctx)
	case fleet.AzureRoles:
		return a.checkRoles(ctx)
	case fleet.AzureRequirements:
		return a.checkRequirements(ctx)
	case fleet.AzureFederation:
		return a.createFederation(ctx)
	case fleet.AzureCredentials:
		return a.storeCredentials(ctx)
	case fleet.AzureCertificate:
		return a.ensureCertificate(ctx)
	case fleet.AzureAPIRecord:
		return a.createAPIRecord(ctx)
	case fleet.AzureServiceRecords:
		return a.createServiceRecords(ctx)
	}
	return fmt.Errorf("step %q is unknown", a.step.Kind)
}

func (a *attempt) remove(ctx context.Context) error {
	switch a.step.Kind {
	case fleet.AzureResourceGroup:
		return a.removeGroup(ctx)
	case fleet.AzureDNSZone:
		return a.removeZone(ctx)
	case fleet.AzureDNSDelegation:
		return a.removeDelegation(ctx)
	case fleet.AzureDocuments:
		return a.removeDocuments(ctx)
	case fleet.AzureSecurityGroup:
		return a.dissociate(ctx)
	case fleet.AzureRoles, fleet.AzureIdentities, fleet.AzureRequirements:
		a.done() // the steps only read
		return nil
	case fleet.AzureFederation:
		return a.removeFederation(ctx)
	case fleet.AzureCredentials:
		return a.removeCredentials(ctx)
	case fleet.AzureCertificate:
		return a.removeCertificate(ctx)
	case fleet.AzureAPIRecord:
		return a.removeAPIRecord(ctx)
	case fleet.AzureServiceRecords:
		return a.removeServiceRecords(ctx)
	}
	return fmt.Errorf("step %q is unknown", a.step.Kind)
}

func (a *attempt) done() { a.outcome.Done = true }

// finish ends the step if err is nil, and returns err.
func (a *attempt) finish(err error) error {
	if err == nil {
		a.done()
	}
	return err
}

// requestsAtOnce is the maximum number of requests that a step sends at the same time.
const requestsAtOnce = 8

// concurrently calls do for all values, for at most requestsAtOnce at the same time, and returns the first error.
func concurrently[T any](all []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	for _, one := range all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

// await makes the worker attempt the step again, after Azure's Retry-After or soon.
func (a *attempt) await(what string, response *http.Response) {
	a.outcome.Awaited = what
	if response != nil {
		a.outcome.RetryAfter = pauseFrom(response)
	}
}

// decide stores a fact before the step acts on it. The worker attempts the step again when the fact is stored.
func (a *attempt) decide(name, value string) {
	a.outcome.Facts = map[string]string{name: value}
}

// withResponse runs a call and returns Azure's HTTP response, because the SDK's pollers do not expose its headers.
func withResponse[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (*http.Response, error) {
	var response *http.Response
	_, err := call(policy.WithCaptureResponse(ctx, &response))
	return response, err
}

// isAccepted reports whether Azure accepted a request and has not finished it (202).
func isAccepted(response *http.Response) bool {
	return response != nil && response.StatusCode == http.StatusAccepted
}

// isNotFound reports whether Azure returned that a resource or its parent does not exist (404).
func isNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

func hasStatus(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

// describe returns the text of an error for operators: Azure's status and code without the dump of the response.
func describe(err error) string {
	var response *azcore.ResponseError
	// An error of the credential contains the whole exchange in many lines.
	text := strings.Join(strings.Fields(err.Error()), " ")
	if errors.As(err, &response) {
		text = fmt.Sprintf("Azure returned %d %s", response.StatusCode, response.ErrorCode)
		if response.RawResponse != nil && response.RawResponse.Request != nil {
			text += " for " + response.RawResponse.Request.Method + " " + response.RawResponse.Request.URL.Path
		}
	}
	return text[:min(len(text), maxError)]
}

// retryAfter returns the pause that Azure requested with an error, and 0 when it requested none.
func retryAfter(err error) time.Duration {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return 0
	}
	return pauseFrom(response.RawResponse)
}

// pauseFrom reads the pause that a response requests: in milliseconds, in seconds, or as a date (RFC 9110, section 10.2.3).
func pauseFrom(response *http.Response) time.Duration {
	for _, name := range []string{"retry-after-ms", armheader.RetryAfterMS} {
		if n, err := strconv.Atoi(response.Header.Get(name)); err == nil && n >= 0 {
			return time.Duration(n) * time.Millisecond
		}
	}
	text := response.Header.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
