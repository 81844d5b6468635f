//go:build v20251223preview

package main

import (
	"context"
	"errors"

	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// extend sets the properties that do not exist at all api-versions.
func extend(p *sdk.HcpOpenShiftClusterProperties) {
	mirror(p)
}

func observed(p *sdk.HcpOpenShiftClusterProperties) error {
	return errors.Join(vaultShown(p), mirrored(p))
}

func observedAuth(p *sdk.ExternalAuthProperties) error {
	if p.Condition != nil {
		return errors.New("the external authentication shows a condition")
	}
	return nil
}

func (d *day) requestCredential(ctx context.Context) (credentialPoller, error) {
	return d.clusters.BeginRequestAdminCredential(ctx, d.task.ResourceGroup, "typed", nil)
}
