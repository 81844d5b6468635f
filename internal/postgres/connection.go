// Package postgres connects services to PostgreSQL: one way to configure a pool of connections, to migrate a schema, and to
// classify errors. Cluster Service and Maestro store their data through it; what they store is theirs.
//
// The connection settings are made for a network that loses machines. Without them, a client waits about 15 minutes for a
// server whose machine vanished, and a server keeps the locks of a vanished client for two hours. With them, both ends give
// up after half a minute.
package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
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
	// Authentication replaces the client certificate, the TLS settings and the password of URL; the zero value replaces nothing.
	Authentication Authentication
}

// Authentication is how sessions authenticate to the server, apart from what a URL contains.
type Authentication struct {
	// TLS encrypts all connections, verifies the server and presents the client's certificate. No connection is made without it,
	// whatever the sslmode of the URL. Nil means the TLS settings of the URL. Sessions end when GetClientCertificate returns another
	// certificate than they have presented.
	TLS *tls.Config
	// Password returns the password of the next session, for example a token that expires. Sessions that are open stay open when it
	// expires. Nil means the password of the URL.
	Password func(ctx context.Context) (string, error)
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
	connection.Tracer = &DiskWatch{}
	if options.Authentication.TLS != nil {
		requireTLS(&connection.Config, options.Authentication.TLS)
	}
	config.BeforeConnect = options.Authentication.prepare
	if presented := connection.TLSConfig; presented != nil && presented.GetClientCertificate != nil {
		config.MaxConnLifetime = sessionAge
		config.PrepareConn = func(_ context.Context, session *pgx.Conn) (bool, error) {
			return hasCurrentCertificate(session, presented), nil
		}
	}
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

// prepare completes the configuration of the next session.
func (a *Authentication) prepare(ctx context.Context, session *pgx.ConnConfig) (err error) {
	if a.TLS != nil && a.TLS.GetClientCertificate != nil {
		recordCertificate(&session.Config)
	}
	if a.Password == nil {
		return nil
	}
	if session.Password, err = a.Password(ctx); err != nil {
		return fmt.Errorf("opening a session of the database: %w", err)
	}
	return nil
}

// requireTLS makes all connections to the hosts of a configuration use the TLS configuration. An sslmode such as prefer makes a second
// entry without TLS for each host, which it removes.
func requireTLS(connection *pgconn.Config, config *tls.Config) {
	type host struct {
		name string
		port uint16
	}
	connection.TLSConfig = config.Clone()
	known := map[host]bool{{connection.Host, connection.Port}: true}
	connection.Fallbacks = slices.DeleteFunc(connection.Fallbacks, func(fallback *pgconn.FallbackConfig) bool {
		fallback.TLSConfig = config.Clone()
		at := host{fallback.Host, fallback.Port}
		defer func() { known[at] = true }()
		return known[at]
	})
}

// Connect opens one connection with the settings of a pool, but outside of it. It is for sessions that live long, such as
// those that listen for notifications.
func Connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	return connectTo(ctx, pool, "")
}

// connectTo is Connect to another database of the server. An empty name is the database of the pool.
func connectTo(ctx context.Context, pool *pgxpool.Pool, database string) (*pgx.Conn, error) {
	config := pool.Config()
	if database != "" {
		config.ConnConfig.Database = database
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
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
