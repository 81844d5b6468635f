package broker

import (
	"context"
	"slices"
	"strings"
	"time"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// client is an authenticated client.
type client struct {
	// workload is the workload in the SPIFFE ID of the client's certificate.
	workload mesh.Peer
	// name is the first DNS name of the certificate. The name of an agent is its consumer.
	name string
	// end is the end of the certificate. It is zero for a client that is known by its client ID only.
	end time.Time
}

// permissions are the rules of package mesh for the topics of a source. They correspond to Event Grid's topic spaces and
// permission bindings.
type permissions struct {
	source string
	rules  *mesh.Authorizer
}

func newPermissions(o Options) *permissions {
	return &permissions{source: o.Source, rules: mesh.NewAuthorizer(mesh.EventGridEmulator, mesh.Rules(), o.Log).WithRefusals(o.Refused)}
}

// connect reports whether a client may connect, because it may use some topic.
func (p *permissions) connect(c client) bool { return slices.Contains(p.rules.Clients(), c.workload) }

// topic reports whether a client may publish to a topic, or subscribe to a filter and receive matching messages.
func (p *permissions) topic(c client, topic string, publish bool) bool {
	if rest, shared := strings.CutPrefix(topic, "$share/"); shared && !publish {
		_, topic, _ = strings.Cut(rest, "/")
	}
	source, consumer, channel, ok := maestroapi.ParseTopic(topic)
	return ok && source == p.source && p.rules.Topic(c.workload, c.name, actionOf(publish), consumer, channel)
}

// actionOf returns the action of the rules.
func actionOf(publish bool) string {
	if publish {
		return mesh.Publish
	}
	return mesh.Subscribe
}

// refuse records that a client was refused an action on a topic, or the connection.
func (p *permissions) refuse(c client, action, topic string) {
	_, _, channel, _ := maestroapi.ParseTopic(topic)
	// The engine has no context of a client.
	p.rules.RefuseTopic(context.Background(), c.workload, c.name, action, channel, topic)
}
