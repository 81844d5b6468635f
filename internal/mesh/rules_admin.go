package mesh

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// The roles of engineers. Each includes those before it.
const reader, operator = string(adminv1.Reader), string(adminv1.Operator)

// adminRules allows engineers the routes of admin, by role. An action also needs an active elevation. Everybody may read the
// description of the API and the public keys of intents.
func adminRules() []Rule {
	return slices.Concat(
		httpRules(Admin, grants(Anybody), "GET /admin/v1/openapi.json", "GET /admin/v1/intent-keys"),
		adminReads(), adminActions(),
		httpRules(Admin, engineers(Condition{Role: operator}), "POST /admin/v1/elevations", "DELETE /admin/v1/access-sessions/{session}", "POST /admin/v1/silences", "POST /admin/v1/silences/{silence}/end", elevation("DELETE", ""),
			elevation("POST", "/approve"), elevation("POST", "/deny"), elevation("POST", "/activate"), elevation("POST", "/review")),
	)
}

// adminReads returns the rules of routes that change nothing.
func adminReads() []Rule {
	var rules []Rule
	for _, read := range adminv1.Reads() {
		rules = append(rules, httpRules(Admin, engineers(Condition{Role: string(read.Role)}), "GET "+adminv1.Root+read.Path)...)
	}
	return rules
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
