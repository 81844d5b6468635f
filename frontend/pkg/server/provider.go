package server

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/hub"
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

// granted is what may be granted on one type of resource, by the last words of ARM's names for it.
type granted struct {
	resource string
	title    string
	actions  []grantedAction
}

type grantedAction struct{ name, operation, description string }

// changeable are the actions on a type that customers make, change and delete.
func changeable(one string) []grantedAction {
	return []grantedAction{
		{"read", "Read", "Reads " + one},
		{"write", "Create or update", "Creates or updates " + one},
		{"delete", "Delete", "Deletes " + one},
	}
}

// providerActions is everything that a role can grant. What a route does and what it needs is said here and nowhere else.
func providerActions() []granted {
	const cluster, asynchronous = "Hosted control plane cluster", "Asynchronous operation"
	return []granted{
		{hub.ProviderNamespace, "Resource provider", []grantedAction{
			{"register/action", "Register", "Registers the subscription with the resource provider"},
			{"unregister/action", "Unregister", "Unregisters the subscription from the resource provider"},
		}},
		{hub.ProviderNamespace + "/operations", "Operations", []grantedAction{{"read", "Read", "Lists the operations of the resource provider"}}},
		{hub.ClusterResourceType, cluster, append(changeable("a hosted control plane cluster"),
			grantedAction{"requestAdminCredential/action", "Request an administrator credential", "Requests a credential of an administrator of the cluster, for a limited time"},
			grantedAction{"revokeCredentials/action", "Revoke credentials", "Revokes all credentials of administrators of the cluster"})},
		{hub.NodePoolResourceType, "Node pool", changeable("a node pool of a hosted control plane cluster")},
		{hub.ExternalAuthResourceType, "External authentication", changeable("the external authentication of a hosted control plane cluster")},
		{hub.OpenShiftVersionResourceType, "OpenShift version", []grantedAction{{"read", "Read", "Reads the OpenShift versions that a location offers"}}},
		{hub.OperatorIdentityRoleSetResourceType, "Operator identity role set", []grantedAction{{"read", "Read", "Reads the roles that the operators of a cluster need"}}},
		{hub.ProviderNamespace + "/locations/hcpOperationStatuses", asynchronous, []grantedAction{{"read", "Read", "Reads how an asynchronous operation stands"}}},
		{hub.ProviderNamespace + "/locations/hcpOperationResults", asynchronous, []grantedAction{{"read", "Read", "Reads the result of an asynchronous operation"}}},
	}
}

// listOperations lists the provider's operations; the answer is the same for every api-version.
func (s *Server) listOperations(_ context.Context, rq *request) error {
	var values []any
	for _, of := range providerActions() {
		for _, action := range of.actions {
			values = append(values, providerOperation{
				Name:    of.resource + "/" + action.name,
				Display: providerDisplay{Provider: "Azure Red Hat OpenShift", Resource: of.title, Operation: action.operation, Description: action.description},
				Origin:  "user,system",
			})
		}
	}
	return s.listFixed(rq, "operations", values)
}

// serveHealth answers /healthz and /readyz on the API's own listener.
func (s *Server) serveHealth(_ context.Context, rq *request) error {
	s.Health.ServeHTTP(rq.w, rq.http)
	return nil
}
