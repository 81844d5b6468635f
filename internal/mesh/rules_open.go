package mesh

import "slices"

// Operations is the server of the rules of the port for health and metrics, which each process has. The port is plain HTTP and has no
// authentication, so that its callers have no identity.
const Operations Peer = "operations"

// Portal is the server of the rules of the SRE portal, a listener of admin for browsers. Its callers are people with a session, which the
// portal checks itself.
const Portal Peer = "portal"

// OpenRules returns the rows of the authorization table for ports whose callers do not authenticate with a certificate of the region: the
// port for operations, the SRE portal, and the ports of the emulators and of ARM's front door. Everybody may use exactly these methods. Every other
// request at these ports, and at that of the session gateway, needs a credential that the server checks itself: a token, a session, or the signature of an account key. Rules returns
// the other rows, which an Authorizer enforces and Istio's policies contain.
//
// The endpoints for injected faults are not part of the table: they have no authentication, and exist only if a test has enabled them.
func OpenRules() []Rule {
	anybody := grants(Anybody)
	return slices.Concat(
		httpRules(Operations, anybody, "GET /healthz", "GET /readyz", "GET /version", "GET /metrics"),
		httpRules(UpdateGraph, anybody, "GET /api/upgrades_info/graph", "GET /api/upgrades_info/v1/graph"),
		httpRules(ARMFrontDoor, anybody, "GET /metadata/endpoints", "POST /{tenant}/oauth2/v2.0/token",
			"GET /{tenant}/v2.0/.well-known/openid-configuration", "GET /{tenant}/discovery/v2.0/keys", "GET /{tenant}/oauth2/v2.0/authorize", "POST /{tenant}/oauth2/v2.0/authorize", "GET /{tenant}/oauth2/v2.0/logout"),
		httpRules(Portal, anybody, "GET /assets/{name}", "GET /sign-in", "GET /signed-in", "GET /signed-out", "POST /sign-out", "POST /theme"),
	)
}
