package mesh

// The callers that are no workloads. They have no certificate of the region, so that no connection has one of these identities.
const (
	// Engineers are people with a token and a role; see Condition.Role.
	Engineers Peer = "engineers"
	// ManagementClusters are the agents on management clusters that open tunnels to the session gateway, with a token of their own identity.
	ManagementClusters Peer = "management-clusters"
	// Anybody is every caller, without a certificate or a token.
	Anybody Peer = "anybody"
)

// IsWorkload reports whether a caller has a certificate of the region.
func (p Peer) IsWorkload() bool { return p != Engineers && p != ManagementClusters && p != Anybody }

// Unrouted is the pattern of HTTP requests that match no other pattern of a server. Its clients get the error of the server, for
// example 404, and all others are refused.
const Unrouted = "/"

// Engineer returns the condition under which engineers may use an HTTP pattern of the server, or an error if they may not.
func (a *Authorizer) Engineer(pattern string) (Condition, error) {
	return a.condition(HTTP, pattern, Engineers)
}

// Public returns an error unless everybody may use an HTTP pattern of the server.
func (a *Authorizer) Public(pattern string) error {
	_, err := a.condition(HTTP, pattern, Anybody)
	return err
}
