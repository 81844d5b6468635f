package app

import (
	"cmp"
	"context"
	"flag"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options are the options of monitor.
type Options struct {
	Database database.Options
	Mesh     mesh.Options
	// ClusterServiceAddress is host:port.
	ClusterServiceAddress string
	// Replica names this process among the replicas.
	Replica string
	// LeaseDuration is how long after the last heartbeat another replica acquires a group.
	LeaseDuration time.Duration
	// Addresses are those from which API servers see monitor's connections, separated by commas.
	Addresses string
	// Anchors are the servers that tell whether monitor's own network works, each host:port, separated by commas.
	Anchors string
	// Connections is the maximum number of kept connections.
	Connections int

	// interval is the time between two probes of a cluster; 0 means the default. Tests set it.
	interval time.Duration
	// dial opens connections to API servers; nil means a net.Dialer. Tests set it.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// AddFlags registers the flags of the options.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	o.Mesh.AddFlags(flags)
	host, _ := os.Hostname()
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service's gRPC API")
	flags.StringVar(&o.Replica, "replica", host, "unique `name` of this replica; a restarted replica with the same name acquires its groups at once")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 6*time.Second, "time after a replica's last heartbeat when other replicas acquire its groups")
	flags.StringVar(&o.Addresses, "egress-addresses", "", "`addresses` from which API servers see monitor's connections, separated by commas; without them, clusters with authorized CIDRs are not probed")
	flags.StringVar(&o.Anchors, "anchors", "", "`servers` host:port, separated by commas, that do not depend on hosted clusters; if none of them can be reached, monitor's own network is broken and it makes no statement about clusters")
	flags.IntVar(&o.Connections, "max-connections", 10_000, "maximum `number` of connections to API servers that are kept open, 1 to 100000")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	_, err := o.addresses()
	err = cmp.Or(
		o.Database.Validate(), o.Mesh.Validate(),
		process.Named("egress-addresses", err),
		process.Required("cluster-service-address", o.ClusterServiceAddress),
		process.Required("replica", o.Replica),
		process.AtLeast("lease-duration", o.LeaseDuration, time.Second),
		process.Between("max-connections", o.Connections, 1, 100_000),
	)
	for _, address := range o.anchors() {
		host, port, invalid := net.SplitHostPort(address)
		err = cmp.Or(err, process.ErrorIf(invalid != nil || host == "" || port == "", "--anchors: %q is not host:port", address))
	}
	return err
}

// Main is the program monitor. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("monitor", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

func (o *Options) addresses() ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, text := range list(o.Addresses) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

func (o *Options) anchors() []string { return list(o.Anchors) }

// list returns the values that commas separate, without spaces around them. An empty text has none.
func list(text string) []string {
	if text == "" {
		return nil
	}
	values := strings.Split(text, ",")
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return values
}
