package probe

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	// anchorInterval is the time between two checks of an anchor. It is shorter than the time in which two failed probes make an API
	// unavailable.
	anchorInterval = 3 * time.Second
	// anchorDeadline is how long an anchor may take to accept a connection.
	anchorDeadline = 2 * time.Second
)

// AnchorOptions are the options of CheckAnchors.
type AnchorOptions struct {
	// Addresses are the anchors, each host:port.
	Addresses []string
	// Dial opens TCP connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Report receives the outcome of each check: an empty failure if the anchor accepted a connection. It may be called
	// concurrently.
	Report func(address, failure string)
}

// CheckAnchors checks servers that do not depend on any hosted cluster, for example those of Azure, until ctx ends. If none
// of them can be reached, the network of monitor itself is broken, and failed probes report nothing about clusters.
// CheckAnchors returns after all checks have ended.
func CheckAnchors(ctx context.Context, options AnchorOptions) {
	if options.Dial == nil {
		options.Dial = (&net.Dialer{}).DialContext
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	for _, address := range options.Addresses {
		checks.Go(func() {
			ticker := time.NewTicker(anchorInterval)
			defer ticker.Stop()
			for {
				if failure := checkAnchor(ctx, &options, address); ctx.Err() == nil {
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

func checkAnchor(ctx context.Context, options *AnchorOptions, address string) (failure string) {
	ctx, cancel := context.WithTimeout(ctx, anchorDeadline)
	defer cancel()
	conn, err := options.Dial(ctx, "tcp", address)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	return ""
}
