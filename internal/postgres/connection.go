// Package postgres connects services to PostgreSQL: one way to configure a pool of connections, to migrate a schema, and to
// classify errors. Cluster Service and Maestro store their data through it; what they store is theirs.
//
// The connection settings are made for a network that loses machines. Without them, a client waits about 15 minutes for a
// server whose machine vanished, and a server keeps the locks of a vanished client for two hours. With them, both ends give
// up after half a minute.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// keepAliveIdle is the time without traffic after which an end probes the other. peerTimeout is the time after that until
	// the other end counts as unreachable, in which keepAliveProbes are sent.
	keepAliveIdle   = 10 * time.Second
	peerTimeout     = 15 * time.Second
	keepAliveProbes = 3
	// connectTimeout bounds the time to establish a connection.
	connectTimeout = 5 * time.Second
)

// Options configure a pool of connections.
type Options struct {
	// URL is the connection string of the database. Run-time parameters and a target session in it take precedence over
	// the settings of this package.
	URL string
	// Application is the application_name of the sessions.
	Application string
	// MaxConnections bounds the pool; 0 means the default of pgxpool.
	MaxConnections int32
}

// Open returns a pool for a database. It does not connect, so it succeeds while the database is unreachable. Sessions are
// with a primary only: a standby may be behind, and would show revisions that go back.
func Open(ctx context.Context, options Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(options.URL)
	if err != nil {
		// The error of the parser can quote the URL, and with it the password.
		return nil, errors.New("malformed database URL")
	}
	if options.MaxConnections > 0 {
		config.MaxConns = options.MaxConnections
	}
	connection := config.ConnConfig
	connection.RuntimeParams["application_name"] = options.Application
	connection.ConnectTimeout = connectTimeout
	connection.DialFunc = dial
	for name, value := range Parameters() {
		if _, given := connection.RuntimeParams[name]; !given {
			connection.RuntimeParams[name] = value
		}
	}
	if connection.ValidateConnect == nil {
		connection.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("creating the connection pool: %w", err)
	}
	return pool, nil
}

// Connect opens one connection with the settings of a pool, but outside of it. It is for sessions that live long, such as
// those that listen for notifications.
func Connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
}

// Parameters returns the run-time parameters of each session. With them the server probes its client, and ends a transaction
// that stays idle: its client is stopped or unreachable, and its locks would delay other sessions. Our transactions are a few
// statements in a row.
func Parameters() map[string]string {
	return map[string]string{
		"tcp_keepalives_idle":                 "10s",
		"tcp_keepalives_interval":             "5s",
		"tcp_keepalives_count":                "3",
		"tcp_user_timeout":                    "25s",
		"idle_in_transaction_session_timeout": "30s",
	}
}

// dial connects to a server so that the socket fails soon after the server vanished, even while it has data to send.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout, Control: setUserTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: peerTimeout / keepAliveProbes, Count: keepAliveProbes}}
	return dialer.DialContext(ctx, network, address)
}
