package egress

import (
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

// Protocol is how a client names the host to which it connects.
type Protocol string

// The protocols: the server name in the first message of TLS, which the gateway does not terminate, and HTTP CONNECT.
const (
	SNI     Protocol = "sni"
	Connect Protocol = "connect"
)

// Protocols returns all protocols.
func Protocols() []Protocol { return []Protocol{SNI, Connect} }

// Reason is why a connection is refused, or Permitted.
type Reason string

// The reasons, in the order in which they are checked.
const (
	Permitted Reason = "permitted"
	// UnknownLink is a link that belongs to no cluster.
	UnknownLink Reason = "unknown-link"
	// EncryptedHello is a client that encrypts the name of the host (Encrypted Client Hello), also one that only pretends to (GREASE).
	EncryptedHello Reason = "encrypted-hello"
	// MissingName is a client that sends no name of a host.
	MissingName Reason = "missing-name"
	// InvalidName is an address, or no name of a host on the internet.
	InvalidName Reason = "invalid-name"
	// Port is a port that is not in the list.
	Port Reason = "port"
	// Host is a host that is neither in the list of the region nor in that of the cluster.
	Host Reason = "host"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Permitted, UnknownLink, EncryptedHello, MissingName, InvalidName, Port, Host}
}

// Request is what a client asked for. All texts are those of the client.
type Request struct {
	Protocol Protocol
	Host     string
	Port     uint16
	// Encrypted is set if the client offered Encrypted Client Hello.
	Encrypted bool
}

// Link has what a decision needs of the document of a link.
type Link interface {
	// Permits reports whether the cluster of the link may connect to a host with this canonical name.
	Permits(host string) bool
}

// Policy is what the configuration of the region permits to all clusters. It is immutable.
type Policy struct {
	hosts []string
	ports []uint16
}

// NewPolicy returns a policy. hosts are names in any form, and ports are the ports of all hosts.
func NewPolicy(hosts []string, ports []uint16) (*Policy, error) {
	p := &Policy{ports: slices.Clone(ports)}
	for _, host := range hosts {
		canonical, err := publicaddress.CanonicalName(host)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		p.hosts = append(p.hosts, canonical)
	}
	slices.Sort(p.hosts)
	return p, nil
}

// Decide returns the canonical name of the host if the request is permitted, and the reason. A nil link belongs to no cluster. The name is also
// returned with the reasons Port and Host. Names are compared as a whole: a permitted host permits no host below it.
func (p *Policy) Decide(link Link, r Request) (host string, reason Reason) {
	switch {
	case link == nil:
		return "", UnknownLink
	case r.Encrypted:
		return "", EncryptedHello
	case r.Host == "":
		return "", MissingName
	}
	host, err := publicaddress.CanonicalName(r.Host)
	if err != nil {
		return "", InvalidName
	}
	if !slices.Contains(p.ports, r.Port) {
		return host, Port
	}
	if _, found := slices.BinarySearch(p.hosts, host); !found && !link.Permits(host) {
		return host, Host
	}
	return host, Permitted
}
