package server

import (
	"context"
	"net/http"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// providerOperation is one entry of ARM's list of what may be granted on the provider's resources.
type providerOperation struct {
	Name         string          `json:"name"`
	IsDataAction bool            `json:"isDataAction"`
	Display      providerDisplay `json:"display"`
	Origin       string          `json:"origin"`
}

type providerDisplay struct {
	Provider    string `json:"provider"`
	Resource    string `json:"resource"`
	Operation   string `json:"operation"`
	Description string `json:"description"`
}

// listOperations lists the provider's operations; the answer is the same for every api-version.
func (s *Server) listOperations(_ context.Context, rq *request) error {
	answer := page{Value: []any{}}
	for _, resource := range []struct{ resourceType, title, one string }{
		{hub.ClusterResourceType, "Hosted control plane cluster", "a hosted control plane cluster"},
		{hub.NodePoolResourceType, "Node pool", "a node pool of a hosted control plane cluster"},
	} {
		for _, action := range []struct{ name, operation, description string }{
			{"read", "Read", "Reads " + resource.one},
			{"write", "Create or update", "Creates or updates " + resource.one},
			{"delete", "Delete", "Deletes " + resource.one},
		} {
			answer.Value = append(answer.Value, operationOf(resource.resourceType+"/"+action.name, resource.title, action.operation, action.description))
		}
	}
	for _, resource := range []string{"hcpOperationStatuses", "hcpOperationResults"} {
		answer.Value = append(answer.Value, operationOf(hub.ProviderNamespace+"/locations/"+resource+"/read", "Asynchronous operation",
			"Read", "Reads how an asynchronous operation stands"))
	}
	return rq.w.json(http.StatusOK, answer)
}

func operationOf(name, resource, operation, description string) providerOperation {
	return providerOperation{
		Name:    name,
		Display: providerDisplay{Provider: "Azure Red Hat OpenShift", Resource: resource, Operation: operation, Description: description},
		Origin:  "user,system",
	}
}

// serveHealth answers /healthz and /readyz on the API's own listener.
func (s *Server) serveHealth(_ context.Context, rq *request) error {
	s.Health.ServeHTTP(rq.w, rq.http)
	return nil
}

// notServed answers what the contract has and this release does not do yet.
func (s *Server) notServed(_ context.Context, rq *request) error {
	return apierror.New(apierror.InvalidResourceType, "This release of %s does not serve %s %s.", hub.ProviderNamespace, rq.http.Method, rq.match.pattern)
}
