package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

func (d *day) manageNodePools(ctx context.Context) error {
	var pool sdk.NodePool
	if err := json.Unmarshal(d.task.NodePool, &pool); err != nil {
		return err
	}
	pool.Properties.Labels = []*sdk.Label{{Key: to.Ptr("example.com/tier"), Value: to.Ptr("front")}}
	pool.Properties.Taints = []*sdk.Taint{{Key: to.Ptr("example.com/tier"), Value: to.Ptr("front"), Effect: to.Ptr(sdk.EffectPreferNoSchedule)}}
	for _, name := range []string{"first", "second"} {
		poller, err := d.nodePools.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, "typed", name, pool, nil)
		result, body, err := finish(ctx, poller, err)
		if err != nil {
			return err
		}
		if err := d.judge.check(result.NodePool, body); err != nil {
			return err
		}
		if *result.Properties.ProvisioningState != sdk.ProvisioningStateSucceeded || *result.Properties.Replicas != 1 {
			return fmt.Errorf("unexpected result: %s", body)
		}
	}
	found, err := pagesOf(ctx, d, d.nodePools.NewListByParentPager(d.task.ResourceGroup, "typed", nil),
		func(r sdk.NodePoolsClientListByParentResponse) (any, []*sdk.NodePool) {
			return r.NodePoolListResult, r.Value
		})
	if err != nil {
		return err
	}
	if len(found) != 2 {
		return fmt.Errorf("%d node pools", len(found))
	}

	poller, err := d.nodePools.BeginUpdate(ctx, d.task.ResourceGroup, "typed", "first",
		sdk.NodePoolUpdate{Properties: &sdk.NodePoolPropertiesUpdate{Replicas: to.Ptr[int32](2)}}, nil)
	scaled, body, err := finish(ctx, poller, err)
	if err != nil {
		return err
	}
	if err := d.judge.check(scaled.NodePool, body); err != nil {
		return err
	}
	got, body, err := read(ctx, func(ctx context.Context) (sdk.NodePoolsClientGetResponse, error) {
		return d.nodePools.Get(ctx, d.task.ResourceGroup, "typed", "first", nil)
	})
	if err != nil {
		return err
	}
	if err := d.judge.check(got.NodePool, body); err != nil {
		return err
	}
	if *scaled.Properties.Replicas != 2 || *got.Properties.Replicas != 2 {
		return fmt.Errorf("unexpected result of scaling: %s", body)
	}

	deletion, err := d.nodePools.BeginDelete(ctx, d.task.ResourceGroup, "typed", "second", nil)
	if err != nil {
		return err
	}
	if _, err := deletion.PollUntilDone(ctx, often); err != nil {
		return err
	}
	_, err = d.nodePools.Get(ctx, d.task.ResourceGroup, "typed", "second", nil)
	_, err = refused(err, http.StatusNotFound, "ResourceNotFound")
	return err
}

func (d *day) manageExternalAuth(ctx context.Context) error {
	var auth sdk.ExternalAuth
	if err := json.Unmarshal(d.task.ExternalAuth, &auth); err != nil {
		return err
	}
	auth.Properties.Claim.ValidationRules = []*sdk.TokenClaimValidationRule{{
		Type:          to.Ptr(sdk.TokenValidationRuleTypeRequiredClaim),
		RequiredClaim: &sdk.TokenRequiredClaim{Claim: to.Ptr("hd"), RequiredValue: to.Ptr("example.com")},
	}}
	creation, err := d.auths.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, "typed", "entra", auth, nil)
	created, body, err := finish(ctx, creation, err)
	if err != nil {
		return err
	}
	if err := d.judge.check(created.ExternalAuth, body); err != nil {
		return err
	}
	if err := observedAuth(created.Properties); err != nil {
		return err
	}
	if *created.Properties.ProvisioningState != sdk.ExternalAuthProvisioningStateSucceeded {
		return fmt.Errorf("unexpected result: %s", body)
	}
	found, err := pagesOf(ctx, d, d.auths.NewListByParentPager(d.task.ResourceGroup, "typed", nil),
		func(r sdk.ExternalAuthsClientListByParentResponse) (any, []*sdk.ExternalAuth) {
			return r.ExternalAuthListResult, r.Value
		})
	if err != nil {
		return err
	}
	if len(found) != 1 || *found[0].Name != "entra" {
		return fmt.Errorf("%d external authentications", len(found))
	}

	change, err := d.auths.BeginUpdate(ctx, d.task.ResourceGroup, "typed", "entra", sdk.ExternalAuthUpdate{
		Properties: &sdk.ExternalAuthPropertiesUpdate{Claim: &sdk.ExternalAuthClaimProfileUpdate{
			Mappings: &sdk.TokenClaimMappingsProfileUpdate{Username: &sdk.UsernameClaimProfileUpdate{Claim: to.Ptr("upn")}},
		}},
	}, nil)
	changed, body, err := finish(ctx, change, err)
	if err != nil {
		return err
	}
	if err := d.judge.check(changed.ExternalAuth, body); err != nil {
		return err
	}
	if *changed.Properties.Claim.Mappings.Username.Claim != "upn" {
		return fmt.Errorf("unexpected result: %s", body)
	}

	deletion, err := d.auths.BeginDelete(ctx, d.task.ResourceGroup, "typed", "entra", nil)
	if err != nil {
		return err
	}
	if _, err := deletion.PollUntilDone(ctx, often); err != nil {
		return err
	}
	_, err = d.auths.Get(ctx, d.task.ResourceGroup, "typed", "entra", nil)
	_, err = refused(err, http.StatusNotFound, "ResourceNotFound")
	return err
}

func (d *day) seeOffers(ctx context.Context) error {
	operations, err := pagesOf(ctx, d, d.operations.NewListPager(nil),
		func(r sdk.OperationsClientListResponse) (any, []*sdk.Operation) {
			return r.OperationListResult, r.Value
		})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(operations, func(o *sdk.Operation) bool {
		return *o.Name == "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/requestAdminCredential/action" && o.Display != nil && o.Display.Operation != nil
	}) {
		return fmt.Errorf("the provider lists %d operations without the credential request", len(operations))
	}

	versions, err := pagesOf(ctx, d, d.versions.NewListPager(d.task.Location, nil),
		func(r sdk.HcpOpenShiftVersionsClientListResponse) (any, []*sdk.HcpOpenShiftVersion) {
			return r.HcpOpenShiftVersionListResult, r.Value
		})
	if err != nil {
		return err
	}
	if len(versions) < 2 {
		return fmt.Errorf("%d versions", len(versions))
	}
	version, body, err := read(ctx, func(ctx context.Context) (sdk.HcpOpenShiftVersionsClientGetResponse, error) {
		return d.versions.Get(ctx, d.task.Location, *versions[0].Name, nil)
	})
	if err != nil {
		return err
	}
	if err := d.judge.check(version.HcpOpenShiftVersion, body); err != nil {
		return err
	}
	if !slices.ContainsFunc(versions, func(v *sdk.HcpOpenShiftVersion) bool {
		return v.Properties.EndOfLifeTimestamp != nil && v.Properties.EndOfLifeTimestamp.Year() >= 2025
	}) {
		return fmt.Errorf("none of the %d versions has an end of support after 2024", len(versions))
	}

	sets, err := pagesOf(ctx, d, d.roleSets.NewListPager(d.task.Location, nil),
		func(r sdk.HcpOperatorIdentityRoleSetsClientListResponse) (any, []*sdk.HcpOperatorIdentityRoleSet) {
			return r.HcpOperatorIdentityRoleSetListResult, r.Value
		})
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		return fmt.Errorf("no role sets")
	}
	set, body, err := read(ctx, func(ctx context.Context) (sdk.HcpOperatorIdentityRoleSetsClientGetResponse, error) {
		return d.roleSets.Get(ctx, d.task.Location, *sets[0].Name, nil)
	})
	if err != nil {
		return err
	}
	return d.judge.check(set.HcpOperatorIdentityRoleSet, body)
}

// missMissing reads and deletes a missing resource. The deletion succeeds.
func (d *day) missMissing(ctx context.Context) error {
	_, err := d.clusters.Get(ctx, d.task.ResourceGroup, "absent", nil)
	if _, err := refused(err, http.StatusNotFound, "ResourceNotFound"); err != nil {
		return err
	}
	d.recorder.watch(nil)
	poller, err := d.clusters.BeginDelete(ctx, d.task.ResourceGroup, "absent", nil)
	if err != nil {
		return err
	}
	if _, err := poller.PollUntilDone(ctx, often); err != nil {
		return err
	}
	if answer := d.recorder.last(); answer.status != http.StatusNoContent {
		return fmt.Errorf("deleting a missing resource returned %d", answer.status)
	}
	_, err = d.versions.Get(ctx, d.task.Location, "1.0", nil)
	_, err = refused(err, http.StatusNotFound, "ResourceNotFound")
	return err
}
