package postgres

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The values of --database-authentication.
const (
	// WithPassword authenticates with the password of the URL.
	WithPassword = "password"
	// WithCertificate authenticates with the certificate of the process, and accepts only a server with the identity `postgresql`.
	WithCertificate = "certificate"
	// WithEntra authenticates each session with a token of Entra ID for the workload identity of the process, as Azure Database for
	// PostgreSQL accepts it in place of a password. The user of the URL is the role that the server maps to that identity.
	WithEntra = "entra"
)

// PublicAudience is the audience of tokens for Azure Database for PostgreSQL in Azure's public cloud.
const PublicAudience = "https://ossrdbms-aad.database.windows.net"

// Settings are the flags with which a program connects to its database.
type Settings struct {
	// URL has no password. URLFile replaces it if the URL has one.
	URL, URLFile   string
	Authentication string
	// Audience is the audience of the tokens of WithEntra, and TokenCAFile the file with the authorities of the token endpoint; empty
	// means those of the system.
	Audience, TokenCAFile string
}

// AddFlags registers the settings with flags.
func (s *Settings) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.URL, "database-url", "", "`URL` of the PostgreSQL database, without a password; a server on another machine needs sslmode=verify-full in it")
	flags.StringVar(&s.URLFile, "database-url-file", "", "`file` with the URL of the PostgreSQL database, in place of --database-url; it may contain a password")
	flags.StringVar(&s.Authentication, "database-authentication", WithPassword,
		"`method` of authentication to PostgreSQL: password takes that of the URL, certificate uses the one of --identity-dir, entra requests tokens of Entra ID for the workload identity")
	flags.StringVar(&s.Audience, "database-audience", PublicAudience, "`audience` of the tokens of --database-authentication=entra, which depends on the cloud")
	flags.StringVar(&s.TokenCAFile, "database-token-ca-file", "", "PEM `file` with the authorities of the endpoint that issues these tokens; empty trusts those of the system")
}

// Validate returns an error that names the flag with a missing or unsupported value, or two flags that exclude each other.
func (s *Settings) Validate() error {
	if s.URL == "" && s.URLFile == "" {
		return errors.New("--database-url is required, or --database-url-file")
	}
	if s.URL != "" && s.URLFile != "" {
		return errors.New("--database-url and --database-url-file: set one of them")
	}
	switch s.Authentication {
	case WithPassword, WithCertificate:
		if s.TokenCAFile != "" {
			return fmt.Errorf("--database-token-ca-file: --database-authentication=%s uses no tokens", s.Authentication)
		}
	case WithEntra:
		audience, err := url.Parse(s.Audience)
		if err != nil || audience.Scheme != "https" || audience.Host == "" || strings.HasSuffix(s.Audience, "/") {
			return fmt.Errorf("--database-audience: %q is not an https URL without a final slash", s.Audience)
		}
	default:
		return fmt.Errorf("--database-authentication: %q is not supported; supported values are %s, %s and %s", s.Authentication, WithPassword, WithCertificate, WithEntra)
	}
	if s.URL == "" {
		return nil // the content of the file is checked when it is read
	}
	if hasPassword(s.URL) {
		return errors.New("--database-url: the URL contains a password, which other processes could read: use --database-url-file")
	}
	_, err := s.check(s.URL)
	return err
}

// Read returns the URL with the authentication of the process. The errors contain no part of the URL but its host.
func (s *Settings) Read(identity *mesh.Identity) (databaseURL string, authentication Authentication, err error) {
	databaseURL = s.URL
	if s.URLFile != "" {
		text, err := os.ReadFile(s.URLFile)
		if err != nil {
			return "", Authentication{}, fmt.Errorf("--database-url-file: %w", err)
		}
		databaseURL = strings.TrimSpace(string(text))
	}
	config, err := s.check(databaseURL)
	if err != nil {
		return "", Authentication{}, err
	}
	switch s.Authentication {
	case WithCertificate:
		if identity == nil {
			return "", Authentication{}, errors.New("--identity-dir is required for --database-authentication=certificate: a sidecar has no certificate for it")
		}
		return databaseURL, Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)}, nil
	case WithEntra:
		tokens, err := workloadTokens(s.Audience, s.TokenCAFile, config.User)
		if err != nil {
			return "", Authentication{}, err
		}
		return databaseURL, Authentication{Password: tokens.password}, nil
	}
	return databaseURL, Authentication{}, nil
}

// source returns the flag with the URL.
func (s *Settings) source() string {
	if s.URLFile != "" {
		return "--database-url-file"
	}
	return "--database-url"
}

// check returns an error that names the flag if the URL is invalid or does not suit the authentication.
func (s *Settings) check(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		// The error of the parser can quote the URL, and with it the password.
		return nil, fmt.Errorf("%s: no valid URL of a PostgreSQL database", s.source())
	}
	if s.Authentication != WithPassword && hasPassword(databaseURL) {
		return nil, fmt.Errorf("%s: the URL contains a password, which --database-authentication=%s does not use", s.source(), s.Authentication)
	}
	switch s.Authentication {
	case WithPassword:
		// A server on this machine needs no encryption.
		err = checkVerified(&config.Config, false)
	case WithEntra:
		if !hasUser(databaseURL) {
			return nil, fmt.Errorf("%s: the URL has no user: --database-authentication=entra needs the role of the workload identity", s.source())
		}
		err = checkVerified(&config.Config, true)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.source(), err)
	}
	return config, nil
}
