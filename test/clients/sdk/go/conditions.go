//go:build v20260630preview || v20260901preview

package main

import (
	"errors"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// extend sets the properties that exist at the api-versions with conditions.
func extend(p *sdk.HcpOpenShiftClusterProperties) {
	mirror(p)
	p.Ingress = &sdk.IngressProfile{Type: to.Ptr(sdk.IngressTypePublic)}
	p.CryptoRestrictions = to.Ptr(sdk.CryptoRestrictionsNone)
}

func observed(p *sdk.HcpOpenShiftClusterProperties) error {
	if *p.Ingress.Type != sdk.IngressTypePublic {
		return errors.New("the ingress is not public")
	}
	return errors.Join(available(p.Status), vaultShown(p), mirrored(p))
}

func observedAuth(p *sdk.ExternalAuthProperties) error {
	return available(p.Status)
}

func available(status *sdk.ResourceStatus) error {
	if status == nil || !slices.ContainsFunc(status.Conditions, func(c *sdk.Condition) bool {
		return *c.Type == sdk.ConditionTypeAvailable && *c.Status == sdk.StatusTypeTrue && !c.LastTransitionTime.IsZero()
	}) {
		return errors.New("it is not Available")
	}
	return nil
}
