//go:build v20240610preview

package main

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// extend sets the properties that later api-versions renamed.
func extend(p *sdk.HcpOpenShiftClusterProperties) {
	p.Etcd = &sdk.EtcdProfile{DataEncryption: &sdk.EtcdDataEncryptionProfile{
		KeyManagementMode: to.Ptr(sdk.EtcdDataEncryptionKeyManagementModeTypePlatformManaged),
	}}
}

func observed(p *sdk.HcpOpenShiftClusterProperties) error {
	if p.Etcd == nil || *p.Etcd.DataEncryption.KeyManagementMode != sdk.EtcdDataEncryptionKeyManagementModeTypePlatformManaged {
		return errors.New("it does not say who holds the key of etcd")
	}
	return nil
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
