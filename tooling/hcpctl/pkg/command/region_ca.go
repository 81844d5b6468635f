package command

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/spf13/cobra"
)

func (e *environment) regionCA() *cobra.Command {
	return group("ca", "Manage the certificate authorities of the region", &cobra.Command{
		Use: "rotate [AUTHORITY]", Short: "Replace a certificate authority of the running region",
		Long: `Replace an authority of the region while its processes run.

AUTHORITY is one of:

  services  that of the certificates with which the processes of the region identify themselves (default)
  etcd      that of etcd and its users; restarts etcd, the Kubernetes API servers and the HyperShift local runtimes
  NAME      that of the API server of the management cluster NAME and its clients; restarts the clients

All processes first trust the new authority too, then get certificates of it, and no longer trust the previous one in the end. The command
prints each step when it begins. If it fails or is interrupted, run it again: it continues where it ended. A restart of the region
continues, too.`,
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, args []string) error {
			name := local.ServicesAuthority
			if len(args) > 0 {
				name = args[0]
			}
			if err := control.NewClient(dir).RotateAuthority(ctx, name, func(step string) { fmt.Fprintln(e.err, step) }); err != nil {
				return notRunning(err)
			}
			fmt.Fprintf(e.err, "the authority %s was replaced; no process trusts the previous one\n", name)
			return nil
		}),
	})
}
