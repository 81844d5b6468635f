package graph

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// drainTimeout is the maximum time for running requests after the signal to stop.
const drainTimeout = 5 * time.Second

type options struct {
	listen         string
	cert, key      string
	catalogue      string
	followInterval time.Duration
}

// Main is the program update-graph. It reads the arguments of the process.
func Main() {
	var o options
	process.Main("update-graph", &o, o.run)
}

// AddFlags registers the flags.
func (o *options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8585", "serve the update graph on this `address`: HTTPS, or HTTP without a certificate")
	flags.StringVar(&o.cert, "tls-cert", "", "read the server certificate from this `file`")
	flags.StringVar(&o.key, "tls-key", "", "read the certificate's key from this `file`")
	flags.StringVar(&o.catalogue, "release-catalog", "", "read the releases from this YAML `file`; without it the built-in catalogue is served")
	flags.DurationVar(&o.followInterval, "follow-interval", 2*time.Second, "check the file for changes at this interval")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *options) Validate() error {
	return cmp.Or(
		process.ErrorIf((o.cert == "") != (o.key == ""), "--tls-cert and --tls-key: set both or none"),
		process.AtLeast("follow-interval", o.followInterval, 1),
	)
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	catalogue, err := release.Load(o.catalogue)
	if err != nil {
		return fmt.Errorf("--release-catalog: %w", err)
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	handler := New(catalogue, p.Metrics)
	server := process.NewHTTPServer(process.Calls, handler, p.Log)
	if server.TLSConfig, err = certfile.ListenerConfig(o.cert, o.key, p.Metrics); err != nil {
		return errors.Join(err, listener.Close())
	}
	// The process is ready as soon as the catalogue is read and the listener is open.
	p.Ready("listener", func(context.Context) error { return nil })
	p.Log.Info("serving update graphs", logkey.Address, listener.Addr().String(), logkey.Count, len(catalogue.Releases()))

	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.catalogue != "" {
		group.Go(func() { handler.Follow(ctx, o.catalogue, o.followInterval, p.Log) })
	}
	return process.ServeHTTP(ctx, server, listener, drainTimeout)
}
