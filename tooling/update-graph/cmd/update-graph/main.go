// Command update-graph serves a release catalogue as OpenShift's update service does.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/tooling/update-graph/graph"
)

// drainTimeout bounds how long requests may still run once the program is told to stop.
const drainTimeout = 5 * time.Second

type options struct {
	process        process.Options
	listen         string
	cert, key      string
	catalogue      string
	followInterval time.Duration
}

func main() {
	var o options
	flags := flag.NewFlagSet("update-graph", flag.ExitOnError)
	o.process.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8585", "`address` of the update graph, HTTPS, or HTTP without a certificate")
	flags.StringVar(&o.cert, "tls-cert", "", "`file` of the certificate; without one it speaks plain HTTP")
	flags.StringVar(&o.key, "tls-key", "", "`file` of the certificate's key")
	flags.StringVar(&o.catalogue, "release-catalog", "", "YAML `file` of the releases; empty takes the built-in catalogue")
	flags.DurationVar(&o.followInterval, "follow-interval", 2*time.Second, "how often the file is looked at for changes")
	process.Parse(flags, os.Args[1:], o.validate)
	process.Run("update-graph", o.process, o.run)
}

func (o *options) validate() error {
	switch {
	case (o.cert == "") != (o.key == ""):
		return errors.New("--tls-cert and --tls-key: either both or none")
	case o.followInterval <= 0:
		return errors.New("--follow-interval: must be positive")
	}
	return nil
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
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			listener.Close()
			return fmt.Errorf("--tls-cert: %w", err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	handler := graph.New(catalogue, p.Metrics)
	// The catalogue was read and the listener is open: there is nothing else to wait for.
	p.Ready("listener", func(context.Context) error { return nil })
	p.Log.Info("serving update graphs", "address", listener.Addr().String(), "releases", len(catalogue.Releases()))

	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.catalogue != "" {
		group.Go(func() { handler.Follow(ctx, o.catalogue, o.followInterval) })
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	return process.ServeHTTP(ctx, server, listener, drainTimeout)
}
