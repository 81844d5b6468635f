package policy

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// Protocol is a protocol that a connection is upgraded to: the subprotocol of a WebSocket.
type Protocol string

const (
	// RemoteCommand has the streams of a command in a pod. The first byte of each message is the number of its stream.
	RemoteCommand Protocol = remotecommand.StreamProtocolV5Name
	// Channels has the streams of a command or of the ports of a pod, in the same form, without a message that ends a stream. The Kubernetes clients
	// for Python, Java and JavaScript use it. API servers leave it to kubelets: the peer of its messages is a node.
	Channels Protocol = remotecommand.StreamProtocolV4Name
	// PortForward has the bytes of a SPDY connection, whose streams are the connections to the ports of a pod.
	PortForward Protocol = "SPDY/3.1+portforward.k8s.io"
)

// Recorded reports whether the request runs a command in a pod or attaches to one, which is recorded. The streams of a forwarded port are not.
func (r *Request) Recorded() bool { return slices.Contains(r.protocols(), RemoteCommand) }

// protocols returns the protocols of which a subresource requires one; none if it is not upgraded. If a client offers both, the first one is used,
// as API servers do whatever the client prefers.
func (r *Request) protocols() []Protocol {
	if r.Group != "" || r.Resource != "pods" {
		return nil
	}
	switch r.Subresource {
	case "exec", "attach":
		return []Protocol{RemoteCommand, Channels}
	case "portforward":
		return []Protocol{PortForward, Channels}
	}
	return nil
}

// Upgrade returns the protocol that the connection of a permitted request must be upgraded to; empty if it stays HTTP. What is
// upgraded depends only on the resource. It returns an error for a request that asks for an upgrade that its resource does not have, or in a
// form that two servers may understand differently, and for one that does not ask for the upgrade that its resource requires.
func Upgrade(r *http.Request, parsed *Request) (Protocol, error) {
	required := parsed.protocols()
	connection, upgrade := r.Header["Connection"], r.Header["Upgrade"]
	asked := httpguts.HeaderValuesContainsToken(connection, "upgrade") || len(upgrade) > 0 || len(r.Header[":protocol"]) > 0
	isSPDY := slices.ContainsFunc(upgrade, func(value string) bool { return strings.Contains(strings.ToLower(value), "spdy") })
	switch {
	case isSPDY:
		return "", refused("The session gateway does not forward upgrades to SPDY, only to WebSocket. Use kubectl 1.31 or later. It falls back to SPDY after a failed WebSocket: kubectl -v=4 shows why that failed.")
	case !asked && len(required) == 0:
		return "", nil
	case len(required) == 0:
		return "", refused("The session gateway does not forward upgrades to another protocol for %s of %s.", parsed.Verb, parsed.Kind())
	case !asked:
		return "", needsWebSocket(parsed)
	}
	offered, err := checkHandshake(r)
	if err != nil {
		return "", err
	}
	for _, protocol := range required {
		if slices.Contains(offered, string(protocol)) {
			return protocol, nil
		}
	}
	return "", needsWebSocket(parsed)
}

func needsWebSocket(parsed *Request) error {
	required := parsed.protocols()
	return refused("The session gateway forwards %s only over a WebSocket with the protocol %s or %s. Use kubectl 1.31 or later, or a Kubernetes client that offers one of them.", parsed.Kind(), required[0], required[1])
}

// handshakeHeaders are the headers of the handshake of a WebSocket that must exist exactly once.
var handshakeHeaders = []string{"Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version"}

// bearerProtocol is the prefix of a subprotocol with which browsers send tokens to API servers.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// checkHandshake returns the protocols that a client offers. It returns an error unless the request is the handshake of a WebSocket (RFC 6455,
// section 4.1) without a body. Extensions may be offered, and are not used.
func checkHandshake(r *http.Request) (offered []string, err error) {
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Method != http.MethodGet {
		return nil, invalid("A WebSocket needs a GET of HTTP/1.1.")
	}
	for _, name := range handshakeHeaders {
		if len(r.Header[name]) != 1 {
			return nil, invalid("The handshake of a WebSocket needs the header %s exactly once.", name)
		}
	}
	for _, value := range r.Header["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			if token = strings.Trim(token, " \t"); !strings.EqualFold(token, "upgrade") && !strings.EqualFold(token, "keep-alive") {
				return nil, invalid("The header Connection of a WebSocket has another value than Upgrade.")
			}
		}
	}
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key"))
	switch {
	case !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || len(r.Header[":protocol"]) > 0:
		return nil, refused("The session gateway does not forward upgrades to another protocol than WebSocket.")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || len(r.Header["Expect"]) > 0:
		return nil, invalid("The handshake of a WebSocket must not have a body.")
	case r.Header.Get("Sec-Websocket-Version") != "13":
		return nil, invalid("The header Sec-WebSocket-Version must be 13.")
	case err != nil || len(key) != 16:
		return nil, invalid("The header Sec-WebSocket-Key must be the Base64 of 16 bytes.")
	}
	for _, value := range r.Header["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(value, ",") {
			switch protocol = strings.Trim(protocol, " \t"); {
			case !httpguts.ValidHeaderFieldValue(protocol) || protocol == "":
				return nil, invalid("The header Sec-WebSocket-Protocol is not a list of protocols.")
			case strings.HasPrefix(strings.ToLower(protocol), bearerProtocol):
				return nil, refused("The session gateway accepts tokens only in the header Authorization.")
			}
			offered = append(offered, protocol)
		}
	}
	return offered, nil
}
