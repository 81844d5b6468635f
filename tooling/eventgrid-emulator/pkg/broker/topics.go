package broker

import (
	"slices"
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// client is an authenticated client.
type client struct {
	// workload is the workload in the SPIFFE ID of the client's certificate.
	workload mesh.Peer
	// name is the first DNS name of the certificate. The name of an agent is its consumer.
	name string
}

// permissions are the rules of package mesh for the topics of a source. They correspond to Event Grid's topic spaces and
// permission bindings.
type permissions struct {
	source string
	rules  *mesh.Authorizer
}

func newPermissions(source string) *permissions {
	return &permissions{source: source, rules: mesh.NewAuthorizer(mesh.EventGridEmulator, mesh.Rules(), nil)}
}

// connect reports whether a client may connect, because it may use some topic.
func (p *permissions) connect(c client) bool { return slices.Contains(p.rules.Clients(), c.workload) }

// topic reports whether a client may publish to a topic, or subscribe to a filter and receive matching messages.
func (p *permissions) topic(c client, topic string, publish bool) bool {
	action := mesh.Subscribe
	if publish {
		action = mesh.Publish
	}
	if rest, shared := strings.CutPrefix(topic, "$share/"); shared && !publish {
		_, topic, _ = strings.Cut(rest, "/")
	}
	source, consumer, channel, ok := maestroapi.ParseTopic(topic)
	return ok && source == p.source && p.rules.Topic(c.workload, c.name, action, consumer, channel)
}
