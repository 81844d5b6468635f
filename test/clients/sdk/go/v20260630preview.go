//go:build v20260630preview

package main

import "context"

func (d *day) requestCredential(ctx context.Context) (credentialPoller, error) {
	return d.clusters.BeginRequestAdminCredential(ctx, d.task.ResourceGroup, "typed", nil)
}
