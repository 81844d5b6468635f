package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// TunnelFlags are the flags of the tunnels to management clusters.
type TunnelFlags struct {
	// Agents lists NAME=ID of management clusters and of the applications of their agents, separated by commas. Empty means that there are no tunnels.
	Agents string
	// Replicas is the number of processes of the gateway.
	Replicas int
}

// AddFlags registers the flags.
func (f *TunnelFlags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.Agents, "tunnel-agents", "", "comma-separated `NAME=ID` of management clusters and of the applications as which their agents authenticate; without it, there are no tunnels")
	flags.IntVar(&f.Replicas, "tunnel-replicas", 1, "`number` of replicas of the gateway, 1 to 20; each agent connects to all of them")
}

// Validate returns an error that names the first invalid flag.
func (f *TunnelFlags) Validate() error {
	_, err := f.agents()
	return cmp.Or(process.Between("tunnel-replicas", f.Replicas, 1, 20), err)
}

// agents returns the IDs of the applications by management cluster.
func (f *TunnelFlags) agents() (map[string]string, error) {
	agents := map[string]string{}
	if f.Agents == "" {
		return agents, nil
	}
	for pair := range strings.SplitSeq(f.Agents, ",") {
		name, application, _ := strings.Cut(pair, "=")
		if _, err := uuid.Parse(application); err != nil || len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("--tunnel-agents: %q is not the name of a management cluster, = and the ID of an application", pair)
		}
		if agents[name] != "" {
			return nil, fmt.Errorf("--tunnel-agents: %s occurs more than once", name)
		}
		agents[name] = application
	}
	return agents, nil
}

// server returns the options of the tunnels, or nil without agents. Agents have tokens of the issuer and for the audience of engineers, but as applications
// of their own. The caller must execute run until the gateway ends.
func (f *TunnelFlags) server(authentication authn.Options, log *slog.Logger) (options *tunnel.Options, run func(ctx context.Context), err error) {
	agents, err := f.agents()
	if err != nil || len(agents) == 0 {
		return nil, func(context.Context) {}, err
	}
	authentication.ClientIDs = strings.Join(slices.Sorted(maps.Values(agents)), ",")
	authenticator, run, err := authentication.Authenticator(log, nil) // the verifier of engineers counts the keys of the same issuer
	if err != nil {
		return nil, nil, err
	}
	return &tunnel.Options{Agents: agents, Authenticator: authenticator, Replicas: f.Replicas}, run, nil
}
