package server

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// providerOperation is an entry of ARM's list of actions that a role can grant on the provider's resources.
type providerOperation struct {
	Name         string          `json:"name"`
	IsDataAction bool            `json:"isDataAction"`
	Display      providerDisplay `json:"display"`
	// Origin names who may request the action; empty means the default, which is users and the system.
	Origin string `json:"origin,omitempty"`
}

type providerDisplay struct {
	Provider    string `json:"provider"`
	Resource    string `json:"resource"`
	Operation   string `json:"operation"`
	Description string `json:"description"`
}

// grantable lists the actions that a role can grant on one resource type, with the last parts of their names.
type grantable struct {
	resource string
	title    string
	actions  []grantableAction
}

type grantableAction struct{ name, operation, description string }

// crudActions returns the actions on a type that customers create, change and delete.
func crudActions(one string) []grantableAction {
	return []grantableAction{
		{"read", "Read", "Reads " + one},
		{"write", "Create or update", "Creates or updates " + one},
		{"delete", "Delete", "Deletes " + one},
	}
}

// providerActions returns all actions of this service that a role can grant. It is the only list of them.
func providerActions() []grantable {
	const cluster, asynchronous = "Hosted control plane cluster", "Asynchronous operation"
	return []grantable{
		{hub.ProviderNamespace, "Resource provider", []grantableAction{
			{"register/action", "Register", "Registers the subscription with the resource provider"},
		}},
		{hub.ClusterResourceType, cluster, append(crudActions("a hosted control plane cluster"),
			grantableAction{"requestAdminCredential/action", "Request an administrator credential", "Requests a credential of an administrator of the cluster, for a limited time"},
			grantableAction{"revokeCredentials/action", "Revoke credentials", "Revokes all credentials of administrators of the cluster"})},
		{hub.NodePoolResourceType, "Node pool", crudActions("a node pool of a hosted control plane cluster")},
		{hub.ExternalAuthResourceType, "External authentication", crudActions("the external authentication of a hosted control plane cluster")},
		{hub.OpenShiftVersionResourceType, "OpenShift version", []grantableAction{{"read", "Read", "Reads the OpenShift versions that a location offers"}}},
		{hub.OperatorIdentityRoleSetResourceType, "Operator identity role set", []grantableAction{{"read", "Read", "Reads the roles that the operators of a cluster need"}}},
		{hub.ProviderNamespace + "/locations/hcpOperationStatuses", asynchronous, []grantableAction{{"read", "Read", "Reads the status of an asynchronous operation"}}},
		{hub.ProviderNamespace + "/locations/hcpOperationResults", asynchronous, []grantableAction{{"read", "Read", "Reads the result of an asynchronous operation"}}},
	}
}

// classicActions returns the actions of Azure Red Hat OpenShift without hosted control planes, which shares the namespace.
// ARM reads the operations of the namespace from one of the two services only, so that each lists those of both. The
// classic service gives no descriptions.
func classicActions() []grantable {
	const locations = hub.ProviderNamespace + "/locations/"
	return []grantable{
		{locations + "operationresults", "locations/operationresults", []grantableAction{{"read", "Read operation results", ""}}},
		{locations + "operationsstatus", "locations/operationsstatus", []grantableAction{{"read", "Read operations status", ""}}},
		{hub.ProviderNamespace + "/operations", "operations", []grantableAction{{"read", "Read operations", ""}}},
		{hub.ProviderNamespace + "/openShiftClusters", "openShiftClusters", []grantableAction{
			{"read", "Read OpenShift cluster", ""},
			{"write", "Write OpenShift cluster", ""},
			{"delete", "Delete OpenShift cluster", ""},
			{"listCredentials/action", "List credentials of an OpenShift cluster", ""},
			{"listAdminCredentials/action", "List Admin Kubeconfig of an OpenShift cluster", ""},
			{"detectors/read", "Get OpenShift Cluster Detector", ""},
		}},
		{locations + "listPlatformWorkloadIdentityRoleSets", "listPlatformWorkloadIdentityRoleSets", []grantableAction{
			{"read", "Lists all PlatformWorkloadIdentityRoleSets available in the specified location", ""},
		}},
		{locations + "openshiftVersions", "openshiftVersions", []grantableAction{{"read", "Lists all OpenShift versions available to install in the specified location", ""}}},
	}
}

// listOperations lists the operations of the namespace. The response is the same at every api-version.
func (s *Server) listOperations(_ context.Context, rq *request) error {
	var values []any
	list := func(actions []grantable, origin string) {
		for _, of := range actions {
			for _, action := range of.actions {
				values = append(values, providerOperation{
					Name:    of.resource + "/" + action.name,
					Display: providerDisplay{Provider: "Azure Red Hat OpenShift", Resource: of.title, Operation: action.operation, Description: action.description},
					Origin:  origin,
				})
			}
		}
	}
	list(providerActions(), "")
	list(classicActions(), "user,system")
	return rq.writeList(values)
}

// serveHealth serves /healthz and /readyz on the listener of the API.
func (s *Server) serveHealth(_ context.Context, rq *request) error {
	s.Health.ServeHTTP(rq.w, rq.http)
	return nil
}
