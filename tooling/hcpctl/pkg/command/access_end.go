package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
)

// revocationPoll is the interval of questions about the revocation of credentials.
const revocationPoll = 500 * time.Millisecond

func (e *environment) accessEnd() *cobra.Command {
	var noWait bool
	c := e.readCommand(&cobra.Command{
		Use: "end ID…", Short: "End elevations at once and revoke their credentials, or withdraw requests",
		Long: `End elevations at once and revoke their credentials, or withdraw requests. The command waits until the API server of each cluster
rejects the certificates that were requested with the elevation. The revocation continues if the command is interrupted, and 'hcpctl access
show ID' has its progress. Other engineers' certificates for these clusters are replaced: kubectl renews them through hcpctl.`,
	}, func(ctx context.Context, client *adminclient.Client, ids []string) error {
		var ended []*adminv1.Elevation
		for _, id := range ids {
			elevation, err := client.EndElevation(ctx, id)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "elevation %s is %s\n", id, elevation.State)
			ended = append(ended, elevation)
		}
		if noWait {
			return nil
		}
		for _, elevation := range ended {
			if err := e.awaitRevocations(ctx, client, elevation); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the revocation of the credentials")
	return c
}

// awaitRevocations waits until no API server accepts a certificate of an ended elevation.
func (e *environment) awaitRevocations(ctx context.Context, client *adminclient.Client, elevation *adminv1.Elevation) error {
	limited, cancel := context.WithTimeout(ctx, credentialTimeout)
	defer cancel()
	for {
		waits := slices.IndexFunc(elevation.Credentials, func(c adminv1.ElevationCredentials) bool { return c.Revocation != nil && !revocationOver(c.Revocation) })
		if waits < 0 {
			return e.printRevocations(elevation)
		}
		if err := backoff.Sleep(limited, revocationPoll); err != nil {
			c := elevation.Credentials[waits]
			return fmt.Errorf("elevation %s has ended, but the revocation of its credentials for %s is in progress: %s See `hcpctl access show %s`: %w",
				elevation.ID, c.Object(), c.Revocation.Message, elevation.ID, err)
		}
		current, err := adminclient.Get(limited, client, adminv1.ReadElevation, nil, elevation.ID)
		switch {
		case err == nil:
			elevation = current
		case limited.Err() == nil && !adminclient.IsRetryable(err):
			return fmt.Errorf("elevation %s has ended, but the progress of the revocation of its credentials cannot be read: %w", elevation.ID, err)
		}
	}
}

// revocationOver reports whether the state of a revocation does not change any more.
func revocationOver(r *adminv1.ElevationRevocation) bool {
	return r.State == adminv1.RevocationRevoked || r.State == adminv1.RevocationExpired || r.State == adminv1.RevocationFailed
}

// printRevocations prints what API servers accept after the end of an elevation. It returns an error if a revocation failed.
func (e *environment) printRevocations(elevation *adminv1.Elevation) error {
	var failed []string
	for _, c := range elevation.Credentials {
		switch r := c.Revocation; {
		case r == nil:
		case r.State == adminv1.RevocationFailed:
			failed = append(failed, fmt.Sprintf("of %s, which accepts them until %s: %s", c.Object(), r.AcceptedUntil.Local().Format(time.TimeOnly), r.Message))
		default:
			text := fmt.Sprintf("the API server of %s accepts no certificate of the elevation", c.Object())
			if c.Shard != "" {
				text = fmt.Sprintf("the sessions of the elevation for %s have ended", c.Object())
			}
			if _, err := fmt.Fprintf(e.out, "%s (revocation %s)\n", text, r.OperationID); err != nil {
				return err
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("elevation %s has ended, but the credentials were not revoked %s", elevation.ID, strings.Join(failed, "; "))
	}
	return nil
}

// revocationOf returns the progress of the revocation of an elevation's credentials in a word: the state of the cluster that needs the
// most attention.
func revocationOf(v *adminv1.Elevation) string {
	order := []adminv1.RevocationState{adminv1.RevocationExpired, adminv1.RevocationRevoked, adminv1.RevocationRevoking, adminv1.RevocationRequested, adminv1.RevocationUnknown, adminv1.RevocationFailed}
	var most adminv1.RevocationState
	for _, c := range v.Credentials {
		if r := c.Revocation; r != nil && (most == "" || slices.Index(order, r.State) > slices.Index(order, most)) {
			most = r.State
		}
	}
	return string(most)
}

// revocationRows returns a row for each cluster for which credentials were requested with an elevation.
func revocationRows(v *adminv1.Elevation) [][]string {
	var rows [][]string
	for _, c := range v.Credentials {
		text := "not revoked"
		if r := c.Revocation; r != nil {
			text = string(r.State)
			if r.Message != "" {
				text += ": " + r.Message
			}
			if !revocationOver(r) {
				text += fmt.Sprintf(" The API server may accept them until %s", r.AcceptedUntil.Local().Format(time.TimeOnly))
				if c.Shard == "" {
					text += fmt.Sprintf("; see `hcpctl explain %s`", c.Cluster.UID)
				}
				text += "."
			}
		}
		rows = append(rows, []string{"credentials for " + c.Object(), text})
	}
	return rows
}
