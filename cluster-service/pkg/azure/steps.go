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

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// ownerTag marks what is a cluster's, with the cluster's uid: a name alone may be somebody else's.
const ownerTag = "hcpmesh-cluster"

// Steps tries steps.
type Steps struct {
	Clients Clients
	Region  fleet.Region
	Config  config.AzureResources
	// Open opens the sealed signing key of a cluster.
	Open func(owner string, sealed []byte) ([]byte, error)
	// Now is the time by which certificates end.
	Now func() time.Time
}

// maxError bounds an error that is stored and shown.
const maxError = 512

// Try tries a step of an aggregate: to make what is missing, or to remove what is there when the cluster's resources go.
func (s *Steps) Try(ctx context.Context, t *fleet.ClusterAggregate, step *fleet.AzureStep) fleet.AzureOutcome {
	input, _ := s.Region.AzureInput(t, step.Kind)
	a := &attempt{Steps: s, cluster: t.Cluster, step: step, servers: serversOf(t.Azure), outcome: fleet.AzureOutcome{Kind: step.Kind, Undo: t.Azure.Deleting, Input: input}}
	try := a.make
	if t.Azure.Deleting {
		try = a.remove
	}
	if err := try(ctx); err != nil {
		a.outcome.Done, a.outcome.Awaited = false, ""
		a.outcome.Error, a.outcome.RetryAfter = describe(err), retryAfter(err)
	}
	return a.outcome
}

// attempt is one try of a step.
type attempt struct {
	*Steps
	cluster *fleet.Cluster
	step    *fleet.AzureStep
	// servers are the name servers of the cluster's zone, with commas.
	servers string
	outcome fleet.AzureOutcome
}

func (a *attempt) make(ctx context.Context) error {
	switch a.step.Kind {
	case fleet.AzureResourceGroup:
		return a.makeGroup(ctx)
	case fleet.AzureDNSZone:
		return a.makeZone(ctx)
	case fleet.AzureDNSDelegation:
		return a.makeDelegation(ctx)
	case fleet.AzureDocuments:
		return a.publishDocuments(ctx)
	case fleet.AzureSecurityGroup:
		return a.associate(ctx)
	case fleet.AzureRoles:
		return a.checkRoles(ctx)
	case fleet.AzureFederation:
		return a.federate(ctx)
	case fleet.AzureCertificate:
		return a.makeCertificate(ctx)
	case fleet.AzureAPIRecord:
		return a.makeAPIRecord(ctx)
	case fleet.AzureServiceRecords:
		return a.makeServiceRecords(ctx)
	}
	return fmt.Errorf("the step %q is unknown", a.step.Kind)
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
	case fleet.AzureRoles:
		a.done() // nothing was made
		return nil
	case fleet.AzureFederation:
		return a.removeFederation(ctx)
	case fleet.AzureCertificate:
		return a.removeCertificate(ctx)
	case fleet.AzureAPIRecord:
		return a.removeAPIRecord(ctx)
	case fleet.AzureServiceRecords:
		return a.removeServiceRecords(ctx)
	}
	return fmt.Errorf("the step %q is unknown", a.step.Kind)
}

func (a *attempt) done() { a.outcome.Done = true }

// await has the step tried again, when Azure says or soon.
func (a *attempt) await(what string, response *http.Response) {
	a.outcome.Awaited = what
	if response != nil {
		a.outcome.RetryAfter = wantedWait(response)
	}
}

// decide stores a fact before it is acted upon: the step is tried again when it is stored.
func (a *attempt) decide(name, value string) {
	a.outcome.Facts = map[string]string{name: value}
}

// captured runs a call and returns Azure's answer with it, whose headers the SDK's pollers would keep to themselves.
func captured[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (*http.Response, error) {
	var response *http.Response
	_, err := call(policy.WithCaptureResponse(ctx, &response))
	return response, err
}

// underWay says that Azure took a request and goes on with it.
func underWay(response *http.Response) bool {
	return response != nil && response.StatusCode == http.StatusAccepted
}

// gone says that Azure answered that something, or what it is in, is not there.
func gone(err error) bool { return answered(err, http.StatusNotFound) }

func answered(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

// describe is an error for people: Azure's code and status, without the rest of the answer's dump.
func describe(err error) string {
	var response *azcore.ResponseError
	// An error of the credential has the whole exchange in many lines.
	text := strings.Join(strings.Fields(err.Error()), " ")
	if errors.As(err, &response) {
		text = fmt.Sprintf("Azure answered %d %s", response.StatusCode, response.ErrorCode)
		if response.RawResponse != nil && response.RawResponse.Request != nil {
			text += " to " + response.RawResponse.Request.Method + " " + response.RawResponse.Request.URL.Path
		}
	}
	return text[:min(len(text), maxError)]
}

// retryAfter is what Azure asked to wait with an error; 0 when it did not.
func retryAfter(err error) time.Duration {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return 0
	}
	return wantedWait(response.RawResponse)
}

// wantedWait reads the headers by which Azure asks for patience: milliseconds, seconds, or a date (RFC 9110, section 10.2.3).
func wantedWait(response *http.Response) time.Duration {
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
