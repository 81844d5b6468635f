// Command registry serves container images from a folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// drainTimeout is the maximum time for running requests after the signal to stop.
const drainTimeout = 10 * time.Second

type options struct {
	process     process.Options
	listen      string
	addressFile string
	cert, key   string
	dir         string
	read, write string
	openWrites  bool
}

func main() {
	var o options
	flags := flag.NewFlagSet("registry", flag.ExitOnError)
	o.process.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:5000", "serve the registry on this `address`: HTTPS, or HTTP without a certificate")
	flags.StringVar(&o.addressFile, "address-file", "", "write the address of the listener to this `file`")
	flags.StringVar(&o.cert, "tls-cert", "", "read the server certificate from this `file`")
	flags.StringVar(&o.key, "tls-key", "", "read the certificate's key from this `file`")
	flags.StringVar(&o.dir, "data-dir", "", "store the images in this `folder`")
	flags.StringVar(&o.read, "read-credentials", "", "require the credentials in this `file` (USER:PASSWORD) to read; without it everybody may read")
	flags.StringVar(&o.write, "write-credentials", "", "accept writes with the credentials in this `file` (USER:PASSWORD); without it nobody may write")
	flags.BoolVar(&o.openWrites, "open-writes", false, "accept writes without credentials, on a loopback address")
	process.Parse(flags, os.Args[1:], func() error { return errors.Join(process.Required("data-dir", o.dir), o.validate()) })
	process.Run("registry", o.process, o.run)
}

func (o *options) validate() error {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || (ip != nil && ip.IsLoopback())
	switch {
	case (o.cert == "") != (o.key == ""):
		return errors.New("--tls-cert and --tls-key: set both or none")
	case o.openWrites && o.write != "":
		return errors.New("--open-writes: excludes --write-credentials")
	case o.openWrites && !loopback:
		return errors.New("--open-writes: is only possible on a loopback address")
	case o.cert == "" && !loopback && o.read+o.write != "":
		return errors.New("--tls-cert: is required for credentials, except on a loopback address")
	}
	return nil
}

func (o *options) policy() (registry.Policy, error) {
	policy := registry.Policy{Open: o.openWrites}
	var err error
	if o.read != "" {
		if policy.Read, err = registry.LoadCredentials(o.read); err != nil {
			return policy, fmt.Errorf("--read-credentials: %w", err)
		}
	}
	if o.write != "" {
		if policy.Write, err = registry.LoadCredentials(o.write); err != nil {
			return policy, fmt.Errorf("--write-credentials: %w", err)
		}
	}
	return policy, nil
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	policy, err := o.policy()
	if err != nil {
		return err
	}
	content, err := registry.Open(o.dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	listener, err := process.Listen(o.listen, o.addressFile)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := process.NewHTTPServer(process.Files, registry.New(content, policy, p.Log, p.Metrics), p.Log)
	if server.TLSConfig, err = certfile.ListenerConfig(o.cert, o.key, p.Metrics); err != nil {
		return errors.Join(err, listener.Close())
	}
	p.Ready("disk", func(context.Context) error {
		space, err := disk.SpaceOf(o.dir)
		if err == nil && space.Full {
			err = errors.New(space.String())
		}
		return err
	})
	p.Log.Info("serving images", logkey.Address, listener.Addr().String(), logkey.Path, o.dir)
	return process.ServeHTTP(ctx, server, listener, drainTimeout)
}
