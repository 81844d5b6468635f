//go:build v20260901preview

package main

import (
	"context"

	sdk "hcpmesh.test/armredhatopenshifthcp"
)

func (d *day) requestCredential(ctx context.Context) (credentialPoller, error) {
	request := sdk.HcpOpenShiftClusterAdminCredentialRequest{CertificateSigningRequest: &d.task.SigningRequest}
	return d.clusters.BeginRequestAdminCredential(ctx, d.task.ResourceGroup, "typed", request, nil)
}
