//go:build !v20240610preview

package main

import (
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// mirror sets an image mirror, which does not exist at the first api-version.
func mirror(p *sdk.HcpOpenShiftClusterProperties) {
	p.ImageDigestMirrors = []*sdk.ImageDigestMirror{{Source: to.Ptr("registry.redhat.io/ubi9"), Mirrors: []*string{to.Ptr("mirror.example/ubi9")}}}
}

// vaultShown checks the vault of etcd's key, which the first api-version has in the key.
func vaultShown(p *sdk.HcpOpenShiftClusterProperties) error {
	if p.Etcd == nil || *p.Etcd.DataEncryption.CustomerManaged.Kms.VaultName != "vault" {
		return errors.New("it does not show the vault of etcd's key")
	}
	return nil
}

func mirrored(p *sdk.HcpOpenShiftClusterProperties) error {
	if len(p.ImageDigestMirrors) != 1 || *p.ImageDigestMirrors[0].Mirrors[0] != "mirror.example/ubi9" {
		return errors.New("the mirror of images is not there")
	}
	return nil
}
