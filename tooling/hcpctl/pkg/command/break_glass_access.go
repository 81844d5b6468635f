package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/spf13/cobra"
)

// renewBefore is the rest of a certificate's lifetime in which it is renewed. Certificates last 15 minutes.
const renewBefore = 7*time.Minute + 30*time.Second

// accessFile returns the name of the file of an access.
func accessFile(kubeconfig string) string { return kubeconfig + ".access" }

// checkAccessFile returns an error if a file has the access to another cluster than the one with an identifier. The context of that cluster
// would stop working if the file were replaced.
func checkAccessFile(ctx context.Context, client *adminclient.Client, file, cluster string) error {
	access, err := credential.ReadAccess(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w; choose another --file, or replace it with --overwrite", err)
	}
	requested, err := adminclient.Get(ctx, client, adminv1.ReadCluster, nil, cluster)
	if err != nil {
		return err
	}
	if requested.UID != access.Cluster {
		return fmt.Errorf("%s has the access to cluster %s; choose another --file, or replace it with --overwrite", file, access.Cluster)
	}
	return nil
}

func (e *environment) breakGlassCertificate() *cobra.Command {
	var file string
	var renew bool
	c := e.readCommand(&cobra.Command{
		Use: "certificate --access FILE", Short: "Print the certificate of an access for kubectl, renewed if necessary",
		Long: `Print the certificate of an access for kubectl, renewed if necessary. The kubeconfig of 'hcpctl break-glass request' calls this
command. A certificate lasts 15 minutes; the command requests another one while your elevation lasts and the access is not
revoked, also if the API server rejects the current one. The output contains the private key.`,
		PreRunE: func(*cobra.Command, []string) error {
			if file == "" {
				return fmt.Errorf("--access is required")
			}
			return nil
		},
	}, func(ctx context.Context, client *adminclient.Client, _ []string) error {
		access, err := e.currentAccess(ctx, client, file, renew)
		if err != nil {
			return err
		}
		content, err := access.ExecCredential()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, string(content))
		return err
	})
	c.Flags().StringVar(&file, "access", "", "`file` that 'hcpctl break-glass request' has written next to the kubeconfig")
	c.Flags().BoolVar(&renew, "renew", false, "renew the certificate now, for example after its class was revoked")
	return c
}

// currentAccess returns an access with a certificate that lasts. It requests another certificate if the current one ends soon, or if the
// API server rejects it. While that is not possible, it returns the current one until it ends, unless the API server rejects it.
func (e *environment) currentAccess(ctx context.Context, client *adminclient.Client, file string, renew bool) (*credential.Access, error) {
	unlock, err := credential.Lock(file)
	if err != nil {
		return nil, err
	}
	defer unlock()
	access, err := credential.ReadAccess(file)
	if err != nil {
		return nil, err
	}
	rejected := time.Now().Before(access.Expires) && access.Rejected(ctx)
	if !renew && !rejected && time.Until(access.Expires) > renewBefore {
		return access, nil
	}
	_, err = e.requestAccess(ctx, client, file, access)
	switch {
	case err == nil:
		return access, nil
	case rejected:
		return nil, fmt.Errorf("the API server rejects the certificate, because credentials of its class were revoked, and it cannot be renewed: %w", err)
	case !renew && time.Now().Before(access.Expires):
		fmt.Fprintf(e.err, "warning: the certificate ends at %s and cannot be renewed: %v\n", access.Expires.Local().Format(time.TimeOnly), err)
		return access, nil
	}
	return nil, fmt.Errorf("the certificate cannot be renewed: %w", err)
}

// requestAccess requests a certificate for an access, waits for it and stores the access.
func (e *environment) requestAccess(ctx context.Context, client *adminclient.Client, file string, access *credential.Access) (*csv1.BreakGlassCredentialStatus, error) {
	operation, issued, err := requestSigned(ctx, client, access.Cluster, adminv1.CredentialRequest{Level: access.Level, CertificateSigningRequest: access.Request})
	if err != nil {
		return nil, err
	}
	access.Cluster, access.Credential = operation.Target.ID, operation.ID
	access.Server, access.Authority, access.Proxy = issued.GetApiUrl(), issued.GetServingCertificateAuthority(), e.hostedProxy(e.admin.Endpoint)
	access.Certificate, access.Expires = issued.GetCertificate(), issued.GetExpirationTime().AsTime()
	content, err := access.Encode()
	if err != nil {
		return nil, err
	}
	if err := writeSecret(file, content); err != nil {
		return nil, fmt.Errorf("writing the access: %w", err)
	}
	return issued, nil
}

// pluginKubeconfig returns a kubeconfig for an API server with its certificate authority, whose clients run a command of this program as the same
// engineer. They connect through proxy unless it is empty.
func (e *environment) pluginKubeconfig(name, server string, authority []byte, proxy string, arguments ...string) ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding hcpctl: %w", err)
	}
	if e.admin.Engineer != "" {
		arguments = append(arguments, "--as", e.admin.Engineer)
	}
	if e.admin.Endpoint != "" {
		arguments = append(arguments, "--admin-endpoint", e.admin.Endpoint)
	}
	if e.admin.Audience != "" {
		arguments = append(arguments, "--admin-audience", e.admin.Audience)
	}
	if folder, err := e.stateFolder(); err == nil {
		arguments = append(arguments, "--state-dir", folder)
	}
	kubeconfig, err := credential.PluginKubeconfig(name, server, authority, program, arguments)
	if err != nil {
		return nil, err
	}
	return credential.WithProxy(kubeconfig, proxy)
}
