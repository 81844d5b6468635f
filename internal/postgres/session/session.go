// Package session says how services talk to PostgreSQL over a network that loses machines. A server whose machine vanished
// answers no more, and to a server a client that vanished may still be there, with all its locks: without being told
// otherwise, the one is waited for a quarter of an hour and the other holds up everybody for two. Here either is given up
// after half a minute. It knows no driver: what it gives is for whichever is used.
package session

import (
	"context"
	"net"
	"time"
)

const (
	// silence is how long an end may be without a sign of life before it is asked for one, and dead how long after that it is
	// held to be gone.
	silence = 10 * time.Second
	dead    = 15 * time.Second
	probes  = 3
	// dialTimeout bounds how long a connection takes to be made.
	dialTimeout = 5 * time.Second
)

// Parameters are what a session asks of its server, as run-time parameters: to look after its client, and not to keep a
// transaction open, with its locks, in which nothing has been asked for so long that its client must be stopped or gone. A
// transaction of ours is a few requests in a row.
func Parameters() map[string]string {
	return map[string]string{
		"tcp_keepalives_idle":                 "10s",
		"tcp_keepalives_interval":             "5s",
		"tcp_keepalives_count":                "3",
		"tcp_user_timeout":                    "25s",
		"idle_in_transaction_session_timeout": "30s",
	}
}

// Dial connects to a server so that it is known soon when it has vanished, also while it is to receive something.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, Control: giveUp,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: dead / probes, Count: probes}}
	return dialer.DialContext(ctx, network, address)
}

// Unavailable says of an error's SQLSTATE that it is the server's state and not the request's: the same may succeed later, or
// at another server.
func Unavailable(sqlstate string) bool {
	switch sqlstate {
	case "25006", // read-only: it is a standby by now, or has no more room
		"25P03": // the transaction was idle for too long: the process had been stopped
		return true
	}
	// Connection exceptions, insufficient resources, operator intervention.
	return len(sqlstate) == 5 && (sqlstate[:2] == "08" || sqlstate[:2] == "53" || sqlstate[:2] == "57")
}
