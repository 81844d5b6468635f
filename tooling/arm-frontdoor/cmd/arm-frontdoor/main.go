// Command arm-frontdoor plays Azure Resource Manager for one region on a developer's machine or in tests.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/throttle"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// shutdownGrace is how long answers under way may take when the door closes.
const shutdownGrace = 5 * time.Second

type options struct {
	process     process.Options
	listen      string
	publicURL   string
	identityDir string
	frontend    string
	stateDir    string
	clientsFile string
	services    string
	ownFile     string
	audience    string
	engineers   string
	admin       string
	limits      string
	location    string
	apiVersions string
}

func main() {
	flags := flag.NewFlagSet("arm-frontdoor", flag.ExitOnError)
	var o options
	o.process.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "", "`address` to serve ARM on over TLS, as host:port")
	flags.StringVar(&o.publicURL, "public-url", "", "`URL` that callers reach the door at; https://<listen> by default")
	flags.StringVar(&o.identityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt")
	flags.StringVar(&o.frontend, "frontend-address", "", "`address` of the frontend, as host:port")
	flags.StringVar(&o.stateDir, "state-dir", "", "`folder` for the subscriptions and the key that signs tokens")
	flags.StringVar(&o.clientsFile, "clients-file", "", "JSON `file` with the clients that may have tokens")
	flags.StringVar(&o.services, "service-clients-file", "", "JSON `file` with further clients that may have tokens: the region's own services")
	flags.StringVar(&o.ownFile, "own-client-file", "", "JSON `file` with the one client that the door itself is at the resource provider; empty sends the provider no token")
	flags.StringVar(&o.audience, "provider-audience", "", "`audience` of the resource provider's tokens; required with --own-client-file")
	flags.StringVar(&o.engineers, "engineers-file", "", "JSON `file` with the clients that the SREs are, who may have tokens for --admin-audience only")
	flags.StringVar(&o.admin, "admin-audience", "", "`audience` of the SREs' tokens; required with --engineers-file")
	flags.StringVar(&o.location, "location", "westus3", "Azure `location` that the region plays")
	flags.StringVar(&o.apiVersions, "api-versions", "2026-09-01-preview,2026-06-30-preview,2025-12-23-preview,2024-06-10-preview", "comma-separated api-`versions` of the resource provider, the preferred one first")
	flags.StringVar(&o.limits, "limits", "", "what a subscription may ask for, as `KIND=SIZE:PER_SECOND,…` of buckets for reads, writes and deletes; Azure has reads=250:25,writes=200:10,deletes=200:10")
	process.Parse(flags, os.Args[1:], func() error {
		if o.ownFile != "" && o.audience == "" {
			return errors.New("--provider-audience is required with --own-client-file")
		}
		if o.engineers != "" && o.admin == "" {
			return errors.New("--admin-audience is required with --engineers-file")
		}
		return process.Required(flags, "listen", "identity-dir", "frontend-address", "state-dir", "clients-file")
	})
	process.Run("arm-frontdoor", o.process, o.run)
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	identity, err := mesh.LoadIdentity(o.identityDir)
	if err != nil {
		return err
	}
	clients, err := token.ReadClients(o.clientsFile)
	if err != nil {
		return err
	}
	if o.services != "" {
		services, err := token.ReadClients(o.services)
		if err != nil {
			return err
		}
		clients = append(clients, services...)
	}
	own, err := o.own()
	if err != nil {
		return err
	}
	var audiences []string
	if own != nil {
		clients, audiences = append(clients, *own), []string{o.audience}
	}
	if o.engineers != "" {
		engineers, err := token.ReadClients(o.engineers)
		if err != nil {
			return fmt.Errorf("--engineers-file: %w", err)
		}
		for _, engineer := range engineers {
			engineer.Audiences = []string{o.admin}
			clients = append(clients, engineer)
		}
		audiences = append(audiences, o.admin)
	}
	if o.publicURL == "" {
		o.publicURL = "https://" + o.listen
	}
	issuer, err := token.NewIssuer(o.publicURL, o.stateDir, clients, audiences...)
	if err != nil {
		return err
	}
	limits, err := throttle.Parse(o.limits)
	if err != nil {
		return fmt.Errorf("--limits: %w", err)
	}
	stored, err := directory.Open(filepath.Join(o.stateDir, "subscriptions.json"))
	if err != nil {
		return err
	}
	door, err := frontdoor.New(frontdoor.Options{
		PublicURL: o.publicURL, Location: o.location, APIVersions: strings.Split(o.apiVersions, ","),
		Frontend: o.frontend, FrontendTLS: identity.ClientTLS(mesh.Frontend),
		Tokens: issuer, Own: own, ProviderAudience: o.audience, Directory: stored, Limits: limits, Log: p.Log, Metrics: p.Metrics,
	})
	if err != nil {
		return err
	}
	defer door.Close()
	p.Ready("frontend", dial(o.frontend))

	// Callers of ARM have tokens and no certificates.
	tlsConfig := identity.ServerTLS()
	tlsConfig.ClientAuth, tlsConfig.VerifyConnection = tls.NoClientCert, nil
	tlsConfig.MinVersion = tls.VersionTLS12
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{
		Handler: door, TLSConfig: tlsConfig, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 60 * time.Second, WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
	p.Log.Info("serving ARM", "url", o.publicURL)
	return process.ServeHTTP(ctx, server, listener, shutdownGrace)
}

// own is the client that the door itself is; nil when it is none.
func (o *options) own() (*token.Client, error) {
	if o.ownFile == "" {
		return nil, nil
	}
	clients, err := token.ReadClients(o.ownFile)
	if err != nil {
		return nil, fmt.Errorf("--own-client-file: %w", err)
	}
	if len(clients) != 1 {
		return nil, fmt.Errorf("--own-client-file: %s holds %d clients, not one", o.ownFile, len(clients))
	}
	return &clients[0], nil
}

// dial reports whether the frontend takes connections.
func dial(address string) process.Check {
	return func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return errors.New("the frontend takes no connections")
		}
		return connection.Close()
	}
}
