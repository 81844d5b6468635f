package mesh

import "slices"

// frontendRules allows ARM's front door every route of the frontend. The frontend authorizes the customers' requests that it forwards.
func frontendRules() []Rule {
	const (
		provider     = "/providers/Microsoft.RedHatOpenShift"
		subscription = "/subscriptions/{subscriptionId}"
		group        = subscription + "/resourceGroups/{resourceGroup}"
		clusters     = provider + "/hcpOpenShiftClusters"
		cluster      = group + clusters + "/{cluster}"
		nodePools    = cluster + "/nodePools"
		auths        = cluster + "/externalAuths"
		location     = subscription + provider + "/locations/{location}"
		preflight    = provider + "/deployments/{deployment}/preflight"
	)
	methods := []string{
		Unrouted, "GET /healthz", "GET /readyz", "GET " + provider + "/operations",
		"GET " + subscription, "PUT " + subscription,
		"GET " + subscription + clusters, "GET " + group + clusters, "GET " + nodePools, "GET " + auths,
		"POST " + cluster + "/requestAdminCredential", "POST " + cluster + "/revokeCredentials",
		"GET " + location + "/hcpOperationStatuses/{operationId}", "GET " + location + "/hcpOperationResults/{operationId}",
		"GET " + location + "/hcpOpenShiftVersions", "GET " + location + "/hcpOpenShiftVersions/{version}",
		"GET " + location + "/hcpOperatorIdentityRoleSets", "GET " + location + "/hcpOperatorIdentityRoleSets/{version}",
		"POST " + subscription + preflight, "POST " + group + preflight,
	}
	for _, resource := range []string{cluster, nodePools + "/{nodePool}", auths + "/{externalAuth}"} {
		methods = slices.Concat(methods, []string{"GET " + resource, "PUT " + resource, "PATCH " + resource, "DELETE " + resource})
	}
	return httpRules(Frontend, grants(ARMFrontDoor), methods...)
}

func httpRules(server Peer, clients []Grant, methods ...string) []Rule {
	var rules []Rule
	for _, method := range methods {
		rules = append(rules, Rule{server, HTTP, method, clients})
	}
	return rules
}
