package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/spf13/cobra"
)

func (e *environment) clusterCredential() *cobra.Command {
	return group("credential", "Manage administrator credentials of a cluster", e.credentialRequest(), e.credentialRevoke())
}

func (e *environment) credentialRequest() *cobra.Command {
	var target kubeconfigTarget
	c := &cobra.Command{
		Use:   "request NAME",
		Short: "Request an administrator credential and write its kubeconfig",
		Long: `Request an administrator credential for a cluster and write its kubeconfig.

The private key is created locally and stored only in the kubeconfig; the request contains a certificate signing request. The
kubeconfig is a secret that gives full access to the cluster until the credential expires or is revoked.

` + mergeHelp,
		ValidArgsFunction: e.completeNames(clusters()),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, names []string) error {
			key, request, err := credential.Request()
			if err != nil {
				return err
			}
			var issued struct {
				Kubeconfig          string `json:"kubeconfig"`
				ExpirationTimestamp string `json:"expirationTimestamp"`
			}
			body := map[string]string{"certificateSigningRequest": string(request)}
			if err := e.act(ctx, client, names[0], "requestAdminCredential", body, &issued); err != nil {
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
			return e.writeKubeconfig(ctx, target, names[0], client.ClusterID(names[0]), kubeconfig)
		}),
	}
	target.add(c, "output `file`, readable by its owner only (default: standard output)")
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
		Use: "revoke NAME", Short: "Revoke all administrator credentials of a cluster", ValidArgsFunction: e.completeNames(clusters()),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, names []string) error {
			return e.act(ctx, client, names[0], "revokeCredentials", nil, nil)
		}),
	}
}

// act requests an ARM action on a cluster and waits for its end.
func (e *environment) act(ctx context.Context, client *armclient.Client, cluster, action string, body, into any) error {
	id := client.ClusterID(cluster)
	operation, err := client.Act(ctx, id, action, body, into)
	if err != nil {
		return err
	}
	return e.await(ctx, client, operation, id, "cluster "+cluster, e.commandLine("cluster", "watch", cluster))
}

// writeSecret writes to a file that only its owner can read.
func writeSecret(file string, content []byte) error {
	// A new file takes the place of an existing one, which may be readable by others, or be a symbolic link.
	return disk.Replace(file, content, 0o600)
}

// mergeHelp is the part of the help of commands that write a kubeconfig.
const mergeHelp = `An existing kubeconfig keeps its other contexts; the one of an earlier command for the same cluster is replaced, and the new one becomes the
current context. --overwrite replaces the whole file.`

// kubeconfigTarget holds the flags of commands that write a kubeconfig.
type kubeconfigTarget struct {
	file, context string
	overwrite     bool
}

func (t *kubeconfigTarget) add(c *cobra.Command, usage string) {
	c.Flags().StringVarP(&t.file, "file", "f", "", usage)
	c.Flags().StringVar(&t.context, "context", "", "`name` of the context in the kubeconfig (default: the cluster or the shard)")
	c.Flags().BoolVar(&t.overwrite, "overwrite", false, "replace the whole file instead of adding a context to it")
	alsoCheck(c, func(*cobra.Command, []string) error {
		if t.overwrite && t.file == "" {
			return errors.New("--overwrite requires --file")
		}
		return nil
	})
}

// writeKubeconfig adds the current context of a kubeconfig to the file of the flags, or prints it if there is none. name is the default name of
// the context, and object identifies what the access is for.
func (e *environment) writeKubeconfig(ctx context.Context, target kubeconfigTarget, name, object string, kubeconfig []byte) error {
	k := credential.Kubeconfig{Path: target.file, Context: cmp.Or(target.context, name), Object: object, Overwrite: target.overwrite}
	if target.file != "" {
		return k.Write(ctx, kubeconfig)
	}
	content, err := k.Encode(kubeconfig)
	if err != nil {
		return err
	}
	_, err = e.out.Write(content)
	return err
}
