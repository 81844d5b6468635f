//go:build v20240610preview

package main

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// extend sets the vault of etcd's key, which later api-versions have beside the key.
func extend(p *sdk.HcpOpenShiftClusterProperties) {
	p.Etcd.DataEncryption.CustomerManaged.Kms.ActiveKey.VaultName = to.Ptr("vault")
}

func observed(p *sdk.HcpOpenShiftClusterProperties) error {
	if p.Etcd == nil || *p.Etcd.DataEncryption.CustomerManaged.Kms.ActiveKey.VaultName != "vault" {
		return errors.New("it does not show the vault of etcd's key")
	}
	return nil
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
