package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// param is a variable segment of a path.
type param int

const (
	subscriptionParam param = iota
	resourceGroupParam
	locationParam
	clusterParam
	childParam
	operationParam
	otherParam
	paramCount
)

var paramNames = map[string]param{
	"{subscriptionId}": subscriptionParam,
	"{resourceGroup}":  resourceGroupParam,
	"{location}":       locationParam,
	"{cluster}":        clusterParam,
	"{nodePool}":       childParam,
	"{externalAuth}":   childParam,
	"{operationId}":    operationParam,
	"{version}":        otherParam,
	"{deployment}":     otherParam,
}

// versioning determines how a route interprets the api-version parameter.
type versioning int

const (
	// providerVersion accepts the provider's api-versions.
	providerVersion versioning = iota
	// noVersion ignores the parameter: ARM's own protocols, and the operations, which are the same at every api-version,
	// also of other resource types of the namespace.
	noVersion
)

// route is a route of the API.
type route struct {
	method string
	// pattern is also the route's name in metrics and logs.
	pattern    string
	versioning versioning
	handle     handler
	// health is set on the routes of probes, which need no authentication beyond the listener's.
	health bool
	// lifecycle is set on the routes of the subscription itself, which work in every state of the subscription.
	lifecycle bool
	// preflights is set on the routes of preflights, which change nothing.
	preflights bool
	// preflight is set on the PUT of resources that a deployment may contain.
	preflight preflightCheck
	// lists is set on the routes of lists, and options are the OData query options that the list supports.
	lists   bool
	options []string

	// parts are the pattern's segments. params has the parameter of each segment, or -1 for a literal one.
	parts  []string
	params []param
}

const (
	provider      = "/providers/" + hub.ProviderNamespace
	subscription  = "/subscriptions/{subscriptionId}"
	resourceGroup = subscription + "/resourceGroups/{resourceGroup}"
	clusters      = provider + "/hcpOpenShiftClusters"
	cluster       = resourceGroup + clusters + "/{cluster}"
	nodePool      = cluster + "/nodePools/{nodePool}"
	externalAuth  = cluster + "/externalAuths/{externalAuth}"
	locations     = subscription + provider + "/locations/{location}"
)

// routes returns all routes of the API.
func routes() []*route {
	all := []*route{
		{method: http.MethodGet, pattern: locations + "/hcpOperationStatuses/{operationId}", handle: (*Server).getOperationStatus},
		{method: http.MethodGet, pattern: locations + "/hcpOperationResults/{operationId}", handle: (*Server).getOperationResult},
		{method: http.MethodGet, pattern: subscription + clusters, lists: true, options: pagingOptions(), handle: list(clusterType{})},
		{method: http.MethodGet, pattern: resourceGroup + clusters, lists: true, options: pagingOptions(), handle: list(clusterType{})},
		{method: http.MethodGet, pattern: cluster + "/nodePools", lists: true, options: pagingOptions(), handle: list(nodePoolType{})},

		{method: http.MethodGet, pattern: subscription, versioning: noVersion, lifecycle: true, handle: (*Server).getSubscription},
		{method: http.MethodPut, pattern: subscription, versioning: noVersion, lifecycle: true, handle: (*Server).putSubscription},
		{method: http.MethodGet, pattern: provider + "/operations", versioning: noVersion, lists: true, handle: (*Server).listOperations},
		{method: http.MethodGet, pattern: "/healthz", versioning: noVersion, health: true, handle: (*Server).serveHealth},
		{method: http.MethodGet, pattern: "/readyz", versioning: noVersion, health: true, handle: (*Server).serveHealth},

		{method: http.MethodPost, pattern: cluster + "/requestAdminCredential", handle: (*Server).requestAdminCredential},
		{method: http.MethodPost, pattern: cluster + "/revokeCredentials", handle: (*Server).revokeCredentials},
		{method: http.MethodGet, pattern: cluster + "/externalAuths", lists: true, options: pagingOptions(), handle: list(externalAuthType{})},
		{method: http.MethodGet, pattern: locations + "/hcpOpenShiftVersions", lists: true, handle: (*Server).listOpenShiftVersions},
		{method: http.MethodGet, pattern: locations + "/hcpOpenShiftVersions/{version}", handle: (*Server).getOpenShiftVersion},
		{method: http.MethodGet, pattern: locations + "/hcpOperatorIdentityRoleSets", lists: true, handle: (*Server).listOperatorIdentityRoleSets},
		{method: http.MethodGet, pattern: locations + "/hcpOperatorIdentityRoleSets/{version}", handle: (*Server).getOperatorIdentityRoleSet},
		{method: http.MethodPost, pattern: subscription + provider + "/deployments/{deployment}/preflight", versioning: noVersion, preflights: true, handle: (*Server).preflight},
		{method: http.MethodPost, pattern: resourceGroup + provider + "/deployments/{deployment}/preflight", versioning: noVersion, preflights: true, handle: (*Server).preflight},
	}
	all = slices.Concat(routesOf(cluster, clusterType{}), routesOf(nodePool, nodePoolType{}), routesOf(externalAuth, externalAuthType{}), all)
	for _, r := range all {
		r.parts = strings.Split(r.pattern[1:], "/")
		for _, part := range r.parts {
			p, variable := paramNames[part]
			if !variable {
				p = -1
			}
			r.params = append(r.params, p)
		}
	}
	return all
}

// match is the result of looking up a path.
type match struct {
	// route is nil if the API does not have the path, or not with the method.
	route *route
	// pattern is the pattern of the path; empty if the API does not have the path.
	pattern string
	// allowed are the methods of the path, if the API has the path, but not with the method.
	allowed []string
	params  [paramCount]string
}

// maxSegments is more than the number of segments of the longest pattern.
const maxSegments = 16

// find finds the route of a path without regard to the case of ASCII letters. A HEAD has the route of a GET. Parameters are
// unescaped and not empty.
func find(routes []*route, method string, u *url.URL) (found match) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	escaped := strings.TrimSuffix(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	parts := strings.Split(escaped, "/")
	if len(parts) > maxSegments {
		return match{}
	}
	for i, part := range parts {
		unescaped, err := url.PathUnescape(part)
		if err != nil || unescaped == "" {
			return match{}
		}
		parts[i] = unescaped
	}
	for _, r := range routes {
		if !r.matches(parts) {
			continue
		}
		found.pattern = r.pattern
		if r.method != method {
			found.allowed = append(found.allowed, r.method)
			continue
		}
		found.route, found.allowed = r, nil
		for i, p := range r.params {
			if p >= 0 {
				found.params[p] = parts[i]
			}
		}
		return found
	}
	return found
}

// Pattern returns the pattern of the route of a request in the authorization table.
func (s *Server) Pattern(r *http.Request) string {
	if found := find(s.routes, r.Method, r.URL).route; found != nil {
		return found.method + " " + found.pattern
	}
	return mesh.Unrouted
}

// before returns the literal segment before a parameter, for example nodePools before the name of a node pool.
func (r *route) before(p param) string {
	if i := slices.Index(r.params, p); i > 0 {
		return r.parts[i-1]
	}
	return ""
}

func (r *route) matches(parts []string) bool {
	if len(parts) != len(r.parts) {
		return false
	}
	for i, part := range parts {
		if r.params[i] < 0 && !asciifold.Equal(part, r.parts[i]) {
			return false
		}
	}
	return true
}
