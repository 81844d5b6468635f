package egress

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

// Run serves until ctx ends, and then until open connections have ended or the time for that is over. It returns after everything that it started
// has ended.
func Run(ctx context.Context, p *process.Process, options Options) error {
	listeners := map[Protocol]net.Listener{}
	for _, each := range []struct {
		flag, address string
		protocol      Protocol
	}{{"listen", options.Listen, SNI}, {"listen-connect", options.ListenConnect, Connect}} {
		if each.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", each.address)
		if err != nil {
			closeAll(listeners)
			return fmt.Errorf("--%s: %w", each.flag, err)
		}
		listeners[each.protocol] = listener
	}
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		closeAll(listeners)
		return err
	}
	defer db.Close()
	return Serve(ctx, p, options, Parts{Database: db, Listeners: listeners})
}

func closeAll(listeners map[Protocol]net.Listener) {
	for _, listener := range listeners {
		_ = listener.Close()
	}
}

// Parts are the connections of a gateway.
type Parts struct {
	Database  Source
	Listeners map[Protocol]net.Listener
	// Dialer connects to hosts. Only tests have another one than the zero Dialer.
	Dialer publicaddress.Dialer
}

// Serve is Run with existing connections. Tests call it directly.
func Serve(ctx context.Context, p *process.Process, options Options, parts Parts) error {
	permitted, err := options.policy()
	if err != nil {
		closeAll(parts.Listeners)
		return fmt.Errorf("--allow-host: %w", err)
	}
	intents, ring, err := intent.LoadVerifier(options.IntentKeysFile, options.TrustDomain)
	if err != nil {
		closeAll(parts.Listeners)
		return fmt.Errorf("--intent-keys-file: %w", err)
	}
	p.Metrics.MustRegister(keyfile.Collector("intent-keys-file", ring))
	links := NewRegistry(RegistryOptions{Source: parts.Database, Policy: permitted, Intents: intents, Keys: ring, ConnectionsPerLink: options.ConnectionsPerLink, NewPerSecond: options.NewPerLink, Log: p.Log, Metrics: p.Metrics})
	p.Ready("cosmos", links.Ready)
	egress := NewServer(ServerOptions{Links: links, Limits: options.Limits, Dialer: parts.Dialer, Metrics: p.Metrics, Log: p.Log})
	var wg sync.WaitGroup
	// Links are followed in the drain too, so that connections of removed links end.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { links.Run(following) })
	defer wg.Wait()
	defer stop()
	for protocol, listener := range parts.Listeners {
		p.Log.InfoContext(ctx, "serving egress connections", logkey.Protocol, protocol, logkey.Address, listener.Addr().String())
	}
	return egress.Run(ctx, parts.Listeners)
}
