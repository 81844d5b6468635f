package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/spf13/cobra"
)

// credentialTimeout limits the wait for a credential or a revocation that Cluster Service has accepted.
const credentialTimeout = 2 * time.Minute

const (
	// signingTime is the part of an elevation that is left for requesting and signing credentials. A certificate lasts at least 10
	// minutes and ends before the elevation, so that none can be requested in the last minutes of the elevation.
	signingTime = 15 * time.Minute
	// minCredential and maxCredential limit the duration of access. An elevation lasts at most 8 hours.
	minCredential, maxCredential = 10 * time.Minute, 8*time.Hour - signingTime
)

// breakGlass returns the commands for access of SREs to hosted API servers.
func (e *environment) breakGlass() *cobra.Command {
	return group("break-glass", "Manage break-glass access to the API servers of clusters", e.breakGlassRequest(), e.breakGlassRevoke(),
		e.breakGlassList(), e.breakGlassShow(), e.breakGlassCertificate())
}

func (e *environment) breakGlassRequest() *cobra.Command {
	var target kubeconfigTarget
	var text string
	var level adminv1.Level
	var duration time.Duration
	var why justification
	c := &cobra.Command{
		Use: "request CLUSTER", Short: "Request a credential of class sre and write its kubeconfig",
		Long: `Request a credential of class sre and write its kubeconfig. The level reader reads everything but secrets and requires the role operator. The
level admin gives full access and requires the role break-glass.

The private key is created locally and stored in a file next to the kubeconfig, FILE.access. This file is a secret that gives
access to the cluster for at most 15 minutes: so long lasts a certificate. kubectl renews it by calling hcpctl, which needs your
identity and your elevation. The access ends when 'hcpctl access end' ends the elevation, when the elevation expires, or when its class
is revoked. If 'hcpctl break-glass revoke --credential' revokes it, it ends at most 15 minutes later. With --reason and --ticket the command creates an elevation for
the cluster that lasts long enough, and does not end it. If the access policy requires an approval, the command waits for it.

` + mergeHelp + ` FILE.access has one access, so a kubeconfig holds the break-glass access to
one cluster.`,
		PreRunE: func(*cobra.Command, []string) error {
			if target.file == "" {
				return errors.New("--file is required: the access is stored next to it")
			}
			if level = adminv1.Level(text); level.Role() == "" {
				return fmt.Errorf("--level: %q is not one of reader, admin", text)
			}
			if duration < minCredential || duration > maxCredential {
				return fmt.Errorf("--for: %s is not 10m to 7h45m", duration)
			}
			return nil
		},
		RunE: with(e.adminClient, func(ctx context.Context, client *adminclient.Client, args []string) error {
			file := accessFile(target.file)
			if !target.overwrite {
				if err := checkAccessFile(ctx, client, file, args[0]); err != nil {
					return err
				}
			}
			me, err := adminclient.Get(ctx, client, adminv1.ReadMe, nil)
			if err != nil {
				return err
			}
			key, request, err := credential.EngineerRequest(me.ObjectID, level)
			if err != nil {
				return err
			}
			elevation, err := e.elevateFor(ctx, client, level.Class(), args[0], why, duration+signingTime)
			if err != nil {
				return err
			}
			access := &credential.Access{Cluster: args[0], Level: level, Request: string(request), Key: string(key)}
			issued, err := e.requestAccess(ctx, client, file, access)
			switch {
			case elevation == nil:
			case err != nil:
				e.endElevation(ctx, client, elevation)
			default:
				e.printElevationLasts(elevation)
			}
			if err != nil {
				return err
			}
			if file, err = filepath.Abs(file); err != nil {
				return err
			}
			kubeconfig, err := e.pluginKubeconfig(access.Cluster, issued.GetApiUrl(), []byte(issued.GetServingCertificateAuthority()), access.Proxy,
				"break-glass", "certificate", "--access", file)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "credential %s expires at %s; kubectl renews it with hcpctl while your elevation lasts\n", access.Credential, access.Expires.Format(time.RFC3339))
			return e.writeKubeconfig(ctx, target, access.Cluster, access.Cluster, kubeconfig)
		}),
	}
	target.add(c, "output `file`, readable by its owner only; required")
	c.Flags().StringVar(&text, "level", string(adminv1.LevelReader), "`level` of the access: reader or admin")
	_ = c.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{string(adminv1.LevelReader), string(adminv1.LevelAdmin)}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().DurationVar(&duration, "for", time.Hour, "`duration` of the access, 10m to 7h45m")
	why.add(c)
	return e.addAdminFlags(c)
}

// requestSigned requests a credential and waits until the control plane has signed it.
// The revocation of the credentials of another engineer cancels requests that are not signed; they are repeated.
func requestSigned(ctx context.Context, client *adminclient.Client, cluster string, asked adminv1.CredentialRequest) (*adminv1.Operation, *csv1.BreakGlassCredentialStatus, error) {
	for attempt := 1; ; attempt++ {
		operation, err := client.Act(ctx, adminv1.ActionCredentialRequest, asked, cluster)
		if err != nil {
			return nil, nil, err
		}
		if operation, err = client.Await(ctx, operation); err != nil {
			return nil, nil, err
		}
		issued, err := awaitSigned(ctx, client, operation.ID)
		if attempt < maxSignAttempts && errors.Is(err, errCanceled) {
			continue
		}
		return operation, issued, err
	}
}

// maxSignAttempts limits the number of requests for one certificate.
const maxSignAttempts = 3

// errCanceled is the error of a credential that was canceled before it was signed.
var errCanceled = errors.New("it was canceled: its class was revoked, or the cluster is being deleted")

// awaitSigned waits until the control plane has signed a credential.
func awaitSigned(ctx context.Context, client *adminclient.Client, uid string) (*csv1.BreakGlassCredentialStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialTimeout)
	defer cancel()
	for {
		c, err := adminclient.Get(ctx, client, adminv1.ReadCredential, nil, uid)
		if err != nil {
			return nil, err
		}
		switch status := c.Of.GetStatus(); status.GetState() {
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
			return status, nil
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
			return nil, fmt.Errorf("credential %s was not issued: %w", uid, errCanceled)
		default:
			return nil, fmt.Errorf("credential %s was not issued: its state is %s", uid, status.GetState())
		}
		if err := backoff.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the control plane has not signed credential %s yet: %w", uid, err)
		}
	}
}

func (e *environment) breakGlassRevoke() *cobra.Command {
	var class, uid string
	// show is set by the request.
	var show func(operation *adminv1.Operation) error
	c := e.requestWith(&cobra.Command{
		Use: "revoke CLUSTER", Short: "Revoke all credentials of a class, or one of an SRE",
		Long: `Revoke all credentials of a class by replacing its signer, and wait until the API server of the cluster rejects them.

With --credential, revoke one credential of an SRE and the others that were requested with its elevation. The credentials of other
SREs continue to work. No further certificate is issued with the elevation, and the API server accepts the current one until it
expires, at most 15 minutes after it was signed. Revoke the class if that is too late.`,
	}, classOf(adminv1.ActionCredentialRevoke), func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		if uid != "" {
			show = e.printRevokedCredential
			return client.Act(ctx, adminv1.ActionCredentialRevokeOne, nil, args[0], uid)
		}
		show = func(operation *adminv1.Operation) error {
			if err := awaitRevoked(ctx, client, args[0], operation.ID); err != nil {
				return err
			}
			_, err := fmt.Fprintf(e.out, "the API server rejects all previous certificates of class %s (revocation %s)\n", class, operation.ID)
			return err
		}
		return client.Act(ctx, adminv1.ActionCredentialRevoke, adminv1.RevokeRequest{Class: class}, args[0])
	}, func(operation *adminv1.Operation) error { return show(operation) })
	c.Flags().StringVar(&class, "class", "sre", "`class` of the credentials: sre or customer")
	oneOf(c, "class", "sre", "customer")
	c.Flags().StringVar(&uid, "credential", "", "`UID` of the only credential to revoke")
	c.MarkFlagsMutuallyExclusive("class", "credential")
	return c
}

// printRevokedCredential prints until when a revoked credential works.
func (e *environment) printRevokedCredential(operation *adminv1.Operation) error {
	var revoked adminv1.FleetCredential
	if err := json.Unmarshal(operation.Result, &revoked); err != nil {
		return fmt.Errorf("decoding the result of operation %s: %w", operation.ID, err)
	}
	until := "it has no certificate"
	if expires := revoked.Of.GetStatus().GetExpirationTime(); expires != nil {
		until = "the API server accepts its certificate until " + formatTime(expires)
	}
	_, err := fmt.Fprintf(e.out, "credential %s is revoked: no further one is issued with its elevation, and %s\n", revoked.Of.GetUid(), until)
	return err
}

// awaitRevoked waits until a revocation has succeeded, which means that the API server rejects the old signer.
func awaitRevoked(ctx context.Context, client *adminclient.Client, cluster, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, credentialTimeout)
	defer cancel()
	for {
		list, err := adminclient.Get(ctx, client, adminv1.ReadCredentials, nil, cluster)
		switch {
		case err == nil:
		case adminclient.IsRetryable(err):
			list = &adminv1.CredentialList{} // the revocation continues
		default:
			return fmt.Errorf("revocation %s is in progress, but its state cannot be read: %w", uid, err)
		}
		for _, r := range list.Revocations {
			if r.Of.GetUid() != uid {
				continue
			}
			switch state := r.Of.GetStatus().GetState(); state {
			case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED:
				return nil
			case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:
			default:
				return fmt.Errorf("revocation %s did not succeed: its state is %s", uid, enumWord(state, "BREAK_GLASS_REVOCATION_STATE_"))
			}
		}
		if err := backoff.Sleep(ctx, revocationPoll); err != nil {
			return fmt.Errorf("revocation %s is still in progress; see `hcpctl explain %s`: %w", uid, cluster, err)
		}
	}
}
