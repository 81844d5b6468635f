package mesh

import "slices"

// Operations is the server of the rules of the port for health and metrics, which each process has. The port is plain HTTP and has no
// authentication, so that its callers have no identity.
const Operations Peer = "operations"

// OpenRules returns the rows of the authorization table for ports whose callers do not authenticate with a certificate of the region: the
// port for operations, and the ports of the emulators and of ARM's front door. Everybody may use exactly these methods. Every other
// request at these ports needs a credential that the server checks itself: a token, or the signature of an account key. Rules returns
// the other rows, which an Authorizer enforces and Istio's policies contain.
//
// The endpoints for injected faults are not part of the table: they have no authentication, and exist only if a test has enabled them.
func OpenRules() []Rule {
	anybody := grants(Anybody)
	return slices.Concat(
		httpRules(Operations, anybody, "GET /healthz", "GET /readyz", "GET /version", "GET /metrics"),
		httpRules(UpdateGraph, anybody, "GET /api/upgrades_info/graph", "GET /api/upgrades_info/v1/graph"),
		httpRules(ARMFrontDoor, anybody, "GET /metadata/endpoints", "POST /{tenant}/oauth2/v2.0/token",
			"GET /{tenant}/v2.0/.well-known/openid-configuration", "GET /{tenant}/discovery/v2.0/keys"),
	)
}
