// Package anchor checks servers that do not depend on any hosted cluster, for example those of Azure. If none of them can be
// reached, the network of monitor itself is broken, and failed probes report nothing about clusters.
package anchor

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	// interval is the time between two checks of an anchor. It is shorter than the time in which two failed probes make an API
	// unavailable.
	interval = 3 * time.Second
	// deadline is how long an anchor may take to accept a connection.
	deadline = 2 * time.Second
)

// Options are the options of Run.
type Options struct {
	// Addresses are the anchors, each host:port.
	Addresses []string
	// Dial opens TCP connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Report receives the outcome of each check: an empty failure if the anchor accepted a connection. It may be called
	// concurrently.
	Report func(address, failure string)
}

// Run checks all anchors until ctx ends. It returns after all checks have ended.
func Run(ctx context.Context, options Options) {
	if options.Dial == nil {
		options.Dial = (&net.Dialer{}).DialContext
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	for _, address := range options.Addresses {
		checks.Go(func() {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			for {
				if failure := check(ctx, &options, address); ctx.Err() == nil {
					options.Report(address, failure)
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
}

func check(ctx context.Context, options *Options, address string) (failure string) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	conn, err := options.Dial(ctx, "tcp", address)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	return ""
}
