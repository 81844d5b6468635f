package command

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/spf13/cobra"
)

func (e *environment) regionCA() *cobra.Command {
	return group("ca", "Manage the certificate authority of the region", e.regionCARotate())
}

func (e *environment) regionCARotate() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Replace the certificate authority of the running region",
		Long: `Replace the authority of the certificates with which the processes of the region identify themselves, while they run.

All processes first trust the new authority too, then get certificates of it, and no longer trust the previous one in the end.
If the command fails or is interrupted, run it again: it continues where it ended. A restart of the region continues, too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			if err := control.NewClient(dir).RotateAuthority(c.Context()); err != nil {
				return notRunning(err)
			}
			fmt.Fprintln(e.err, "the authority was replaced; no process trusts the previous one")
			return nil
		},
	}
}
