package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/spf13/cobra"
)

func (e *environment) clusterCredential() *cobra.Command {
	return group("credential", "Request and revoke administrators' credentials", e.credentialRequest(), e.credentialRevoke())
}

func (e *environment) credentialRequest() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "request NAME",
		Short: "Request an administrator's credential for a cluster, and write a kubeconfig that uses it",
		Long: `Request an administrator's credential for a cluster, and write a kubeconfig that uses it.

The private key is made here and goes into the kubeconfig only: what is sent is a request to sign its certificate. The
kubeconfig is a secret: whoever has it is the cluster's administrator until it expires or is revoked.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(clusters()),
		RunE: func(c *cobra.Command, names []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			key, request, err := credential.Request()
			if err != nil {
				return err
			}
			var issued struct {
				Kubeconfig          string `json:"kubeconfig"`
				ExpirationTimestamp string `json:"expirationTimestamp"`
			}
			body := map[string]string{"certificateSigningRequest": string(request)}
			if err := e.act(c.Context(), client, names[0], "requestAdminCredential", body, &issued); err != nil {
				return err
			}
			kubeconfig, err := credential.WithKey([]byte(issued.Kubeconfig), key)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "cluster %s: the credential expires at %s\n", names[0], issued.ExpirationTimestamp)
			return e.writeSecret(file, kubeconfig)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`file` to write the kubeconfig to, readable by its owner only")
	return c
}

func (e *environment) credentialRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Revoke all administrators' credentials of a cluster", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(clusters()),
		RunE: func(c *cobra.Command, names []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			return e.act(c.Context(), client, names[0], "revokeCredentials", nil, nil)
		},
	}
}

// act does an action on a cluster and waits for its end.
func (e *environment) act(ctx context.Context, client *armclient.Client, cluster, action string, body, into any) error {
	id := client.ClusterID(cluster)
	operation, err := client.Act(ctx, id, action, body, into)
	if err != nil {
		return err
	}
	return e.await(ctx, client, operation, id, "cluster "+cluster)
}

// writeSecret writes to a file that its owner alone can read, or to the output without a name.
func (e *environment) writeSecret(file string, content []byte) error {
	if file == "" {
		_, err := e.out.Write(content)
		return err
	}
	// A new file of a name that nobody can guess: one that is there may be read by others, or lead elsewhere.
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.part")
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	defer func() { _ = os.Remove(part.Name()) }()
	_, err = part.Write(content)
	if err = errors.Join(err, part.Close()); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return os.Rename(part.Name(), file)
}
