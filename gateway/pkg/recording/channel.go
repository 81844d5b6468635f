package recording

import (
	"encoding/json"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The channels of the protocol v5.channel.k8s.io. The first byte of a message is its channel.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	// channelError has the status of the command, in JSON.
	channelError = 3
	// channelResize has the size of the client's terminal, in JSON.
	channelResize = 4
	// channelClose closes the channel in its second byte.
	channelClose = 255
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

// parse returns the channel and the data of a message. It returns an error for a message on a channel that the side may not send on: the peer
// might understand it, and it would not be recorded. A message without a channel has none, and its peer ignores it.
func parse(client bool, message []byte) (channel byte, data []byte, err error) {
	if len(message) == 0 {
		return channelClose, nil, nil
	}
	channel, data = message[0], message[1:]
	if !permitted(client, channel) {
		side := "API server"
		if client {
			side = "client"
		}
		return 0, nil, apierror.New(apierror.Invalid, "The %s sent a message on channel %d, which cannot be recorded.", side, channel)
	}
	return channel, data, nil
}

// terminalSize returns the size in a message of channelResize. Kubelets ignore others.
func terminalSize(data []byte) (width, height uint16, ok bool) {
	var size struct{ Width, Height uint16 }
	if json.Unmarshal(data, &size) != nil || size.Width == 0 || size.Height == 0 {
		return 0, 0, false
	}
	return size.Width, size.Height, true
}
