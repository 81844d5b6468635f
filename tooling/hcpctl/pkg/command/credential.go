package command

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/internal/durable"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/spf13/cobra"
)

func (e *environment) clusterCredential() *cobra.Command {
	return group("credential", "Manage administrator credentials of a cluster", e.credentialRequest(), e.credentialRevoke())
}

func (e *environment) credentialRequest() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "request NAME",
		Short: "Request an administrator credential and write its kubeconfig",
		Long: `Request an administrator credential for a cluster and write its kubeconfig.

The private key is created locally and stored only in the kubeconfig; the request contains a certificate signing request. The
kubeconfig is a secret that gives full access to the cluster until the credential expires or is revoked.`,
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
			if kubeconfig, err = credential.WithProxy(kubeconfig, e.hostedProxy(e.arm.Endpoint)); err != nil {
				return err
			}
			fmt.Fprintf(e.err, "cluster %s: credential expires at %s\n", names[0], issued.ExpirationTimestamp)
			return e.writeSecret(file, kubeconfig)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "output `file`, readable by its owner only (default: standard output)")
	return c
}

// hostedProxy returns the URL of the HTTP proxy to the API servers of hosted clusters, or "" if there is none. Only a local region, which has no
// other endpoint, has one.
func (e *environment) hostedProxy(endpoint string) string {
	if endpoint != "" {
		return ""
	}
	endpoints, err := e.endpoints()
	if err != nil {
		return ""
	}
	return endpoints.Proxy
}

func (e *environment) credentialRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Revoke all administrator credentials of a cluster", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(clusters()),
		RunE: func(c *cobra.Command, names []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			return e.act(c.Context(), client, names[0], "revokeCredentials", nil, nil)
		},
	}
}

// act requests an ARM action on a cluster and waits for its end.
func (e *environment) act(ctx context.Context, client *armclient.Client, cluster, action string, body, into any) error {
	id := client.ClusterID(cluster)
	operation, err := client.Act(ctx, id, action, body, into)
	if err != nil {
		return err
	}
	return e.await(ctx, client, operation, id, "cluster "+cluster)
}

// writeSecret writes to a file that only its owner can read, or to the standard output if file is empty.
func (e *environment) writeSecret(file string, content []byte) error {
	if file == "" {
		_, err := e.out.Write(content)
		return err
	}
	// A new file takes the place of an existing one, which may be readable by others, or be a symbolic link.
	if err := durable.Replace(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}
