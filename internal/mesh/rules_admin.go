package mesh

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// The roles of engineers. Each includes those before it.
const reader, operator, breakGlass = string(adminv1.Reader), string(adminv1.Operator), string(adminv1.BreakGlass)

// adminRules allows engineers the routes of admin, by role. An action also needs an active elevation. Everybody may read the
// description of the API and the public keys of intents.
func adminRules() []Rule {
	return slices.Concat(
		httpRules(Admin, grants(Anybody), "GET /admin/v1/openapi.json", "GET /admin/v1/intent-keys"),
		adminReads(), httpRules(Admin, engineers(Condition{Role: breakGlass}), "GET /admin/v1/recordings/{recording}/content"), adminActions(),
		httpRules(Admin, engineers(Condition{Role: operator}), "POST /admin/v1/elevations", "DELETE /admin/v1/access-sessions/{session}", "POST /admin/v1/silences", "POST /admin/v1/silences/{silence}/end", elevation("DELETE", ""),
			elevation("POST", "/approve"), elevation("POST", "/deny"), elevation("POST", "/activate"), elevation("POST", "/review")),
	)
}

// adminReads returns the rules of routes that change nothing.
func adminReads() []Rule {
	const cluster, upgrade, shard = "GET /admin/v1/clusters/{cluster}", "GET /admin/v1/upgrades", "GET /admin/v1/shards"
	return httpRules(Admin, engineers(Condition{Role: reader}),
		"GET /admin/v1/clusters", cluster, cluster+"/dump", cluster+"/explanation", cluster+"/timeline", cluster+"/actions", cluster+"/status", cluster+"/journal", cluster+"/access-records", cluster+"/accesses",
		cluster+"/node-pools", cluster+"/node-pools/{pool}", cluster+"/credentials", "GET /admin/v1/credentials/{credential}",
		cluster+"/works", cluster+"/arm-operations", "GET /admin/v1/arm-operations/{operation}",
		"GET /admin/v1/deletions", cluster+"/deletion", "GET /admin/v1/deletion-leftovers",
		upgrade, upgrade+"/{upgrade}", cluster+"/upgrades", cluster+"/upgrade-plan", "GET /admin/v1/upgrade-policies", "GET /admin/v1/upgrade-policies/{policy}",
		"GET /admin/v1/explanation", "GET /admin/v1/alerts", shard, shard+"/{shard}", shard+"/{shard}/drain-plan", cluster+"/placement",
		"GET /admin/v1/orphans", "GET /admin/v1/azure-orphans", "GET /admin/v1/drift", "GET /admin/v1/subscriptions/{subscription}/quota", "GET /admin/v1/egress-links",
		"GET /admin/v1/me", "GET /admin/v1/access-sessions", "GET /admin/v1/access-sessions/{session}", "GET /admin/v1/recordings", "GET /admin/v1/recordings/{recording}", "GET /admin/v1/elevations", elevation("GET", ""), "GET /admin/v1/operations", "GET /admin/v1/operations/{operation}", "GET /admin/v1/audit")
}

// adminActions returns the rules of the actions that the backend executes. admin requires the role break-glass for credentials of the
// level admin.
func adminActions() []Rule {
	var rules []Rule
	for _, action := range adminv1.Actions() {
		if action.Path != "" {
			rules = append(rules, httpRules(Admin, engineers(Condition{Role: string(action.Class.Role()), Elevated: true}), action.Method+" "+adminv1.Root+action.Path)...)
		}
	}
	return rules
}

// elevation returns a pattern of one elevation. The access policy decides who may approve, deny and review it.
func elevation(method, suffix string) string {
	return method + " /admin/v1/elevations/{elevation}" + suffix
}

func engineers(condition Condition) []Grant {
	return []Grant{{Client: Engineers, Condition: condition}}
}

// gatewayRules allows engineers every path of the session gateway but that of tunnels. The gateway checks the token, the session and the
// request itself: a session needs the role operator and an elevation. The rules allow the session gateway to request tokens for the service cluster at
// gateway-grants. They allow the agents of management clusters the path of tunnels, where the
// gateway checks the token and its application. They allow engineers every path of the portal, which needs a session, and calls admin with the
// engineer's token.
func gatewayRules() []Rule {
	return slices.Concat(httpRules(GatewayAccess, engineers(Condition{Role: operator, Elevated: true}), Unrouted), httpRules(GatewayAccess, grants(ManagementClusters), TunnelPath+"{cluster}"),
		httpRules(GatewayGrants, grants(GatewayAccess), "POST "+GrantsPath), httpRules(Portal, engineers(Condition{Role: reader}), Unrouted))
}

// GrantsPath is the path at gateway-grants of the request for a token of the service cluster.
const GrantsPath = "/grants"

// TunnelPath is the prefix of the paths of requests that open a tunnel to the session gateway. The name of the management cluster follows.
const TunnelPath = "/tunnels/"
