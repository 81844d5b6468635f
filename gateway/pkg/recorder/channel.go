package recorder

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/remotecommand"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The channels of the protocols v5.channel.k8s.io and v4.channel.k8s.io. The first byte of a message is its channel.
const (
	channelStdin  = remotecommand.StreamStdIn
	channelStdout = remotecommand.StreamStdOut
	channelStderr = remotecommand.StreamStdErr
	// channelError has the status of the command, in JSON.
	channelError = remotecommand.StreamErr
	// channelResize has the size of the client's terminal, in JSON.
	channelResize = remotecommand.StreamResize
	// channelClose closes the channel in its second byte. v4.channel.k8s.io does not have it: client-go sends such messages all the same, and kubelets
	// ignore them.
	channelClose = remotecommand.StreamClose
)

// permitted reports whether a side may send on a channel.
func permitted(client bool, channel byte) bool {
	switch channel {
	case channelStdin, channelResize:
		return client
	case channelStdout, channelStderr, channelError:
		return !client
	}
	return channel == channelClose
}

// message is a message that can be recorded.
type message struct {
	channel byte
	data    []byte
	// forwarded is what the peer gets: nothing if the protocol gives the message no meaning.
	forwarded []byte
	// width and height are set for channelResize.
	width, height uint16
}

// parse returns the parts of a message. It returns an error for another protocol, and for a message on a channel that the side may not send on: the
// peer might understand it, and it would not be recorded. For the same reason, the peer does not get a message without a meaning, and gets a size
// without what else its message has. A node of a customer understands whatever its owner decides.
func parse(protocol string, client bool, content []byte) (message, error) {
	closes := protocol == remotecommand.StreamProtocolV5Name
	if !closes && protocol != remotecommand.StreamProtocolV4Name {
		return message{}, apierror.New(apierror.Invalid, "The connection has the protocol %q, which cannot be recorded.", protocol)
	}
	if len(content) == 0 {
		return message{channel: channelClose}, nil
	}
	m := message{channel: content[0], data: content[1:], forwarded: content}
	isClose := m.channel == channelClose
	if !permitted(client, m.channel) || isClose && closes && (len(m.data) != 1 || m.data[0] > channelResize) {
		side := "API server"
		if client {
			side = "client"
		}
		return message{}, apierror.New(apierror.Invalid, "The %s sent a message on channel %d, which cannot be recorded.", side, m.channel)
	}
	switch {
	case isClose && !closes:
		m.forwarded = nil
	case m.channel == channelResize:
		m.width, m.height, m.forwarded = terminalSize(m.data)
	}
	return m, nil
}

// terminalSize returns the size in a message of channelResize, and the message that has only that. Kubelets ignore others: there is none for them.
func terminalSize(data []byte) (width, height uint16, forwarded []byte) {
	var size struct{ Width, Height uint16 }
	if json.Unmarshal(data, &size) != nil || size.Width == 0 || size.Height == 0 {
		return 0, 0, nil
	}
	content, _ := json.Marshal(size) // numbers
	return size.Width, size.Height, append([]byte{channelResize}, content...)
}
