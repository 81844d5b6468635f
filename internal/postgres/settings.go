package postgres

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The values of --database-authentication.
const (
	// WithPassword authenticates with the password of the URL.
	WithPassword = "password"
	// WithCertificate authenticates with the certificate of the process, and accepts only a server with the identity `postgresql`.
	WithCertificate = "certificate"
	// WithEntra is for tokens of Entra in place of passwords, as Azure Database for PostgreSQL accepts them. It is not implemented.
	WithEntra = "entra"
)

// Settings are the flags with which a program connects to its database.
type Settings struct {
	URLFile        string
	Authentication string
}

// AddFlags registers the settings with flags.
func (s *Settings) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.URLFile, "database-url-file", "", "`file` with the URL of the PostgreSQL database; a server on another machine needs sslmode=verify-full in it")
	flags.StringVar(&s.Authentication, "database-authentication", WithPassword,
		"`method` of authentication to PostgreSQL: password takes that of the URL, certificate uses the one of --identity-dir")
}

// Validate returns an error that names the flag with an unsupported value.
func (s *Settings) Validate() error {
	switch s.Authentication {
	case WithPassword, WithCertificate:
		return nil
	case WithEntra:
		return errors.New("--database-authentication: entra is not supported yet: use password")
	}
	return fmt.Errorf("--database-authentication: %q is not supported; supported values are %s and %s", s.Authentication, WithPassword, WithCertificate)
}

// Read reads the URL and returns it with the authentication of the process. The errors contain no part of the URL but its host.
func (s *Settings) Read(identity *mesh.Identity) (databaseURL string, authentication Authentication, err error) {
	text, err := os.ReadFile(s.URLFile)
	if err != nil {
		return "", Authentication{}, fmt.Errorf("--database-url-file: %w", err)
	}
	databaseURL = strings.TrimSpace(string(text))
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		// The error of the parser can quote the URL, and with it the password.
		return "", Authentication{}, fmt.Errorf("--database-url-file: %s holds no valid URL of a PostgreSQL database", s.URLFile)
	}
	if s.Authentication == WithCertificate {
		if parsed, err := url.Parse(databaseURL); err == nil && parsed.User != nil {
			if _, given := parsed.User.Password(); given {
				return "", Authentication{}, errors.New("--database-url-file: the URL contains a password, which --database-authentication=certificate does not use")
			}
		}
		return databaseURL, Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)}, nil
	}
	return databaseURL, Authentication{}, checkVerified(&config.Config)
}

// checkVerified returns an error if a connection to another machine would not be encrypted, or not verify the name of the server.
// The password and all data would be readable on the network, or sent to another server.
func checkVerified(config *pgconn.Config) error {
	entries := []pgconn.FallbackConfig{{Host: config.Host, TLSConfig: config.TLSConfig}}
	for _, fallback := range config.Fallbacks {
		entries = append(entries, *fallback)
	}
	for _, entry := range entries {
		if !local(entry.Host) && !verifies(entry.TLSConfig) {
			return fmt.Errorf("--database-url-file: the server %s is not on this machine: its URL needs sslmode=verify-full", entry.Host)
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
