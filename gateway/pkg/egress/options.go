// Package egress is the program gateway-egress, through which clusters without a way to the internet connect to permitted hosts.
//
// A connection begins with a PROXY header, whose link ID identifies the private endpoint and with it the cluster. Whoever can connect to the gateway
// directly can write any header: only the load balancer of the private link service may reach it. Then the client names a host, in the first message
// of TLS or in a request CONNECT. If the Policy permits the host, the Server connects to a public address of it and copies bytes in both directions.
// It never terminates TLS. Each connection has an access record in the log.
//
// The Registry holds the links in memory: which private endpoint belongs to which cluster, and the connections of each. It follows the container
// EgressLinks of Cosmos DB. It ends connections when their link is removed, and when their host is no longer permitted. It also ends them when it could not
// read the documents for too long. A document authorizes nothing unless the intent of an engineer, signed by admin, is for its link, its cluster and its hosts.
// The Registry verifies each version once, and accepts no version that was requested before one that it has served.
package egress

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options holds the flags of gateway-egress.
type Options struct {
	Database database.Options
	// IntentKeysFile has the public keys of intents, with which admin signs what engineers ask for. TrustDomain is the trust domain of the region, which intents name.
	IntentKeysFile, TrustDomain string
	// Listen and ListenConnect are the addresses for clients that name hosts in TLS and with CONNECT, host:port.
	Listen, ListenConnect string
	// Hosts and Ports are what all clusters may connect to. Without ports, only 443 is permitted.
	Hosts []string
	Ports []uint16
	// ConnectionsPerLink is the number of connections of one link.
	ConnectionsPerLink int
	// NewPerLink is the number of connections that one link may open per second.
	NewPerLink int
	Limits     Limits
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	flags.StringVar(&o.IntentKeysFile, "intent-keys-file", "", "`file` with the public Tink keyset of the keys with which admin signs what engineers ask for; a link without a signed intent is refused")
	flags.StringVar(&o.TrustDomain, "trust-domain", "", "trust `domain` of the region")
	flags.StringVar(&o.Listen, "listen", "", "`address` for clients that name the host in TLS; only the load balancer of the private link service may reach it, because its PROXY headers are trusted")
	flags.StringVar(&o.ListenConnect, "listen-connect", "", "`address` for clients that name the host with HTTP CONNECT; as for --listen")
	flags.Func("allow-host", "`names` of hosts to which all clusters may connect, separated by commas; repeatable; a host permits none below it", func(text string) error {
		hosts := strings.Split(text, ",")
		if _, err := NewPolicy(hosts, nil); err != nil {
			return err
		}
		o.Hosts = append(o.Hosts, hosts...)
		return nil
	})
	flags.Func("allow-port", "`port` to which clusters may connect with CONNECT; repeatable (default 443)", func(text string) error {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return errors.New("must be a number from 1 to 65535")
		}
		o.Ports = append(o.Ports, uint16(port))
		return nil
	})
	flags.IntVar(&o.Limits.Connections, "connections", 20_000, "`number` of connections of all links; each needs two file descriptors, and fewer are accepted if they would need more than three quarters of those that the process may have")
	flags.IntVar(&o.ConnectionsPerLink, "connections-per-link", 4000, "`number` of connections of one link")
	flags.IntVar(&o.NewPerLink, "new-connections-per-link", 100, "`number` of connections that one link may open per second; an idle link saves up those of 10 seconds")
	flags.DurationVar(&o.Limits.Idle, "idle-timeout", 10*time.Minute, "`time` without a byte after which a connection is closed")
	flags.DurationVar(&o.Limits.Drain, "drain-connections", 45*time.Second, "`time` for which open connections may continue after --drain; new ones are not accepted")
}

// Validate returns an error for the first missing or invalid flag.
func (o *Options) Validate() error {
	return cmp.Or(
		process.ErrorIf(o.Listen == "" && o.ListenConnect == "", "--listen or --listen-connect is required"),
		process.Required("intent-keys-file", o.IntentKeysFile),
		process.Required("trust-domain", o.TrustDomain),
		process.AtLeast("connections", o.Limits.Connections, 1),
		process.AtLeast("connections-per-link", o.ConnectionsPerLink, 1),
		process.Between("new-connections-per-link", o.NewPerLink, 1, 100_000),
		process.AtLeast("idle-timeout", o.Limits.Idle, 1),
		process.AtLeast("drain-connections", o.Limits.Drain, 0),
		o.Database.Validate(),
	)
}

// Main is the program gateway-egress. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("gateway-egress", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

// policy returns what the flags permit to all clusters.
func (o *Options) policy() (*Policy, error) {
	ports := o.Ports
	if len(ports) == 0 {
		ports = []uint16{443}
	}
	return NewPolicy(o.Hosts, ports)
}
