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
	if c := p.Condition; c == nil || *c.Type != sdk.ExternalAuthConditionTypeAvailable || *c.Status != sdk.StatusTypeTrue || c.LastTransitionTime.IsZero() {
		return errors.New("the external authentication is not Available")
	}
	return nil
}

func (d *day) requestCredential(ctx context.Context) (credentialPoller, error) {
	return d.clusters.BeginRequestAdminCredential(ctx, d.task.ResourceGroup, "typed", nil)
}
