package mesh

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ReasonNotAuthorized is the reason of the errors of refused calls.
const ReasonNotAuthorized = "NOT_AUTHORIZED"

// errorDomain is the domain of the ErrorInfo of refused gRPC calls.
const errorDomain = "mesh.hcpmesh"

// Authorizer enforces the rules of one server. It refuses every call that no rule allows, and logs an audit record of each
// refusal. It requires that the server's connections are those of a Transport, which authenticates callers. It is safe for concurrent use.
type Authorizer struct {
	server  Peer
	clients []Peer
	// grants maps a protocol and a method to the conditions of its clients.
	grants map[Protocol]map[string]map[Peer]Condition
	// paths matches HTTP requests to the patterns of the rules. Its handlers are not used.
	paths *http.ServeMux
	// intents verifies intents; nil refuses all calls that need one.
	intents IntentVerifier
	// refusals receives the refused calls of verified workloads, if it is not nil.
	refusals func(context.Context, Refusal)
	log      *slog.Logger
}

// Connect is the method of a connection, or behind a sidecar of a request, that a server refuses because no rule allows the workload any call.
const Connect = "connect"

// Refusal is a refused call of a verified workload.
type Refusal struct {
	// Client is the workload. One of another trust domain has its whole SPIFFE ID.
	Client Peer
	// Name is the client's name at the broker; empty for other protocols.
	Name string
	// Method is the full name of a gRPC method, the pattern of an HTTP request, the action and the channel of a topic, or Connect.
	Method string
	// Object is the path of an HTTP request or the topic of an MQTT client; empty for gRPC methods.
	Object string
	// Engineer is the name of the engineer who asked for exactly this call, if that is proven.
	Engineer string
	Err      error
}

// IntentVerifier verifies the signed intents of engineers that calls carry. *intent.Verifier implements it.
type IntentVerifier interface {
	// CarriesIntent reports whether a call carries an intent, valid or not.
	CarriesIntent(ctx context.Context) bool
	// VerifyIntent returns a context with the verified intent of a call, or an error if that is not for this method and request.
	// engineer is the name of the engineer who asked for exactly this call, if that is proven, also with an error.
	VerifyIntent(ctx context.Context, method string, request proto.Message) (verified context.Context, engineer string, err error)
}

// NewAuthorizer returns an Authorizer with those of the rules that belong to server. Rules with the same method are combined.
// It panics if a pattern is malformed. The log receives the audit records of refused calls; nil discards them.
func NewAuthorizer(server Peer, rules []Rule, log *slog.Logger) *Authorizer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Authorizer{server: server, grants: map[Protocol]map[string]map[Peer]Condition{}, paths: http.NewServeMux(), log: log}
	for _, rule := range rules {
		if rule.Server != server {
			continue
		}
		if a.grants[rule.Protocol] == nil {
			a.grants[rule.Protocol] = map[string]map[Peer]Condition{}
		}
		clients := a.grants[rule.Protocol][rule.Method]
		if clients == nil {
			clients = map[Peer]Condition{}
			a.grants[rule.Protocol][rule.Method] = clients
			if rule.Protocol == HTTP {
				a.paths.Handle(rule.Method, http.NotFoundHandler())
			}
		}
		for _, grant := range rule.Clients {
			clients[grant.Client] = grant.Condition
			if grant.Client.IsWorkload() && !slices.Contains(a.clients, grant.Client) {
				a.clients = append(a.clients, grant.Client)
			}
		}
	}
	slices.Sort(a.clients)
	return a
}

// WithIntents makes the Authorizer accept calls that need an intent. Without it, all of them are refused. It must be called before
// the Authorizer is used.
func (a *Authorizer) WithIntents(intents IntentVerifier) *Authorizer {
	a.intents = intents
	return a
}

// WithRefusals makes the Authorizer pass each refused call of a verified workload to record before it responds. It must be called
// before the Authorizer is used.
func (a *Authorizer) WithRefusals(record func(context.Context, Refusal)) *Authorizer {
	a.refusals = record
	return a
}

// Clients returns the workloads that may call the server at all, in a stable order. The server accepts connections of no
// other workload; see ServerTLS.
func (a *Authorizer) Clients() []Peer { return slices.Clone(a.clients) }

// ended returns an error if the caller's certificate has ended since the handshake. Servers close such connections; this refuses calls until
// the connection is closed, for example after a suspension of the machine.
func ended(state tls.ConnectionState) error {
	if time.Now().After(state.PeerCertificates[0].NotAfter) {
		return apierror.New(apierror.Unauthenticated, "The certificate of the connection has ended. Connect again with a valid one.").WithReason(ReasonNotAuthorized)
	}
	return nil
}

// condition returns the condition under which client may use a method, or an error if it may not.
func (a *Authorizer) condition(protocol Protocol, method string, client Peer) (Condition, error) {
	condition, ok := a.grants[protocol][method][client]
	if !ok {
		return Condition{}, a.denied(client, method, "")
	}
	return condition, nil
}

// denied returns the error of a refused call. It names the caller and the missing right, and nothing of the requested object.
func (a *Authorizer) denied(client Peer, method, limit string) error {
	return apierror.New(apierror.PermissionDenied, "The identity %s may not call %s of %s%s.", client, method, a.server, limit).WithReason(ReasonNotAuthorized)
}

// audit logs a refused call, and passes it on.
func (a *Authorizer) audit(ctx context.Context, r Refusal) {
	attributes := []any{logkey.Record, "audit", logkey.Action, r.Method, logkey.Client, string(r.Client), logkey.Outcome, "refused", logkey.Error, r.Err}
	if r.Engineer != "" {
		attributes = append(attributes, logkey.Actor, r.Engineer)
	}
	if r.Name != "" {
		attributes = append(attributes, logkey.Name, r.Name)
	}
	if r.Object != "" {
		attributes = append(attributes, logkey.Target, r.Object)
	}
	a.log.WarnContext(ctx, "audit", attributes...)
	if a.refusals != nil && r.Client != "" {
		a.refusals(ctx, r)
	}
}

// TopicMethod returns the method of an action on a channel, for example publish agentevents.
func TopicMethod(action, channel string) string { return action + " " + channel }

// RefuseTopic records that the broker refused a client an action on a topic. The action Connect refuses the
// connection.
func (a *Authorizer) RefuseTopic(ctx context.Context, client Peer, name, action, channel, topic string) {
	method, denied := action, action
	switch {
	case action == Connect:
		denied = "any topic"
	case channel != "":
		method = TopicMethod(action, channel)
		denied = method
	}
	a.audit(ctx, Refusal{Client: client, Name: name, Method: method, Object: topic[:min(len(topic), maxLoggedPath)], Err: a.denied(client, denied, "")})
}

// Topic reports whether a client of the broker may publish or subscribe to the channel of a consumer; see MQTT. The name is
// the client's name at the broker. A consumer with a wildcard stands for several consumers.
func (a *Authorizer) Topic(client Peer, name, action, consumer, channel string) bool {
	condition, err := a.condition(MQTT, TopicMethod(action, channel), client)
	switch {
	case err != nil, condition.OwnConsumer && consumer != name:
		return false
	case action == Publish:
		return !strings.ContainsAny(consumer, "+#")
	}
	return true
}

// limit describes the condition of a call in an error.
func (c Condition) limit() string {
	switch {
	case c.Intent && c.Field != "":
		return fmt.Sprintf(" without the signed intent of an engineer unless %s of the request is %s", c.Field, strings.Join(c.Values, " or "))
	case c.Intent:
		return " without the signed intent of an engineer"
	}
	message := "request"
	if c.InResponse {
		message = "response"
	}
	return fmt.Sprintf(" unless %s of the %s is %s", c.Field, message, strings.Join(c.Values, " or "))
}
