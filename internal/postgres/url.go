package postgres

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// passwordKey and userKey match a password and a user in a connection string of keywords and values.
var passwordKey, userKey = regexp.MustCompile(`(^|\s)password\s*=`), regexp.MustCompile(`(^|\s)user\s*=\s*[^\s]`)

// parseURL returns a connection string as a URL, or nil if it consists of keywords and values.
func parseURL(connection string) *url.URL {
	if !strings.HasPrefix(connection, "postgres://") && !strings.HasPrefix(connection, "postgresql://") {
		return nil
	}
	parsed, err := url.Parse(connection)
	if err != nil {
		return nil
	}
	return parsed
}

// hasPassword reports whether a connection string contains a password, in any of its forms.
func hasPassword(connection string) bool {
	parsed := parseURL(connection)
	if parsed == nil {
		return passwordKey.MatchString(connection)
	}
	_, given := parsed.User.Password()
	return given || parsed.Query().Has("password")
}

// hasUser reports whether a connection string names a user. Without one, pgx takes the user of the operating system.
func hasUser(connection string) bool {
	parsed := parseURL(connection)
	if parsed == nil {
		return userKey.MatchString(connection)
	}
	return parsed.User.Username() != "" || parsed.Query().Get("user") != ""
}

// checkVerified returns an error if a connection would not be encrypted, or not verify the name of the server: the password and all data
// would be readable on the network, or sent to another server. Servers on this machine are excepted unless everywhere is set.
func checkVerified(config *pgconn.Config, everywhere bool) error {
	entries := []pgconn.FallbackConfig{{Host: config.Host, TLSConfig: config.TLSConfig}}
	for _, fallback := range config.Fallbacks {
		entries = append(entries, *fallback)
	}
	for _, entry := range entries {
		switch {
		case verifies(entry.TLSConfig):
		case everywhere:
			return fmt.Errorf("the server %s would get a token without encryption or verification: its URL needs sslmode=verify-full", entry.Host)
		case !local(entry.Host):
			return fmt.Errorf("the server %s is not on this machine: its URL needs sslmode=verify-full", entry.Host)
		}
	}
	return nil
}

// verifies reports whether a configuration of the parser verifies the server's certificate and name.
func verifies(config *tls.Config) bool {
	return config != nil && !config.InsecureSkipVerify && config.ServerName != ""
}

// local reports whether a host is this machine: a loopback address, or the folder of a socket.
func local(host string) bool {
	ip := net.ParseIP(host)
	return strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback()
}
