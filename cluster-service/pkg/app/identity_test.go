package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestRecreatedIdentitiesAreFollowed deletes two identities of a ready cluster and creates them again with the same names. The
// next update reads them: the HostedCluster gets their client IDs, their federated credentials are created again, and the
// customer must assign the roles again.
func TestRecreatedIdentitiesAreFollowed(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.play()
	ctx := t.Context()
	service := r.start(nil)
	request := r.azureRequest("c")
	must.Get(service.ApplyCluster(ctx, request))(t)
	before := service.awaitCluster(t, request.Uid, clusterReady(1)).GetStatus()
	controlPlane, dataPlane := request.Spec.Platform.ControlPlaneOperators["ingress"], request.Spec.Platform.DataPlaneOperators["image-registry"]
	hostedCluster := func() string {
		object, _ := r.rendered(t, before.GetClusterId(), "HostedCluster")
		return fmt.Sprint(object)
	}
	inAzure := func(state string) func(c *csv1.Cluster) bool {
		return func(c *csv1.Cluster) bool { return strings.HasPrefix(progressOf(c, "azure"), state+": ") }
	}
	retry := func(reason string) {
		t.Helper()
		must.Get(service.RetryCluster(ctx, &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice(reason)}))(t)
	}

	// While an identity does not exist, the cluster stays as it is.
	must.Get(r.azure.Faults().Add(faults.Rule{Methods: []string{"GET"}, Path: "/userAssignedIdentities/cp-ingress", Status: 404, Code: "ResourceNotFound"}))(t)
	retry("the customer reports failing operators")
	missing := service.awaitCluster(t, request.Uid, inAzure("IdentityDeleted"))
	if said := progressOf(missing, "azure"); !strings.Contains(said, "controlPlaneOperators[ingress] does not exist") {
		t.Errorf("the progress is %q", said)
	}
	if s := missing.GetStatus(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || len(s.GetIdentities()) != len(before.GetIdentities()) {
		t.Errorf("without the identity the cluster is %v with the identities %v", s.GetPhase(), s.GetIdentities())
	}
	r.azure.Faults().Clear()
	retry("the fault is cleared")
	service.awaitCluster(t, request.Uid, inAzure("Ready"))

	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	name := func(id string) string { return id[strings.LastIndex(id, "/")+1:] }
	for _, id := range []string{controlPlane, dataPlane} {
		must.Get(identities.Delete(ctx, "cust-rg", name(id), nil))(t)
	}
	// The emulator creates the other one when it is read, with all rights.
	recreated := r.operatorWithoutRole(t)

	request.Generation++
	must.Get(service.ApplyCluster(ctx, request))(t)
	unauthorized := service.awaitCluster(t, request.Uid, inAzure("RetryingOperatorRoles")).GetStatus()
	if unauthorized.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY && unauthorized.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_UPDATING {
		t.Errorf("without the roles the cluster is %v", unauthorized.GetPhase())
	}
	roles := must.Get(armauthorization.NewRoleAssignmentsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	must.Get(roles.Create(ctx, "/subscriptions/"+customerSubscription+"/resourceGroups/cust-rg", uuid.NewString(), armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: recreated.Properties.PrincipalID, RoleDefinitionID: to.Ptr("/providers/Microsoft.Authorization/roleDefinitions/4d97b98b-1d4f-4787-a291-c67834d212e7")}}, nil))(t)
	retry("the roles are assigned")
	after := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return clusterReady(2)(c) && inAzure("Ready")(c) }).GetStatus()

	var changed []string
	for id, identity := range after.GetIdentities() {
		found := must.Get(identities.Get(ctx, "cust-rg", name(id), nil))(t)
		if identity.GetClientId() != *found.Properties.ClientID || identity.GetPrincipalId() != *found.Properties.PrincipalID {
			t.Errorf("%s is reported as %v", id, identity)
		}
		if identity.GetClientId() != before.GetIdentities()[id].GetClientId() {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	if want := []string{strings.ToLower(controlPlane), strings.ToLower(dataPlane)}; !slices.Equal(changed, want) || len(after.GetIdentities()) != len(before.GetIdentities()) {
		t.Errorf("changed identities are %v, want %v of %v", changed, want, slices.Collect(maps.Keys(before.GetIdentities())))
	}
	awaitCondition(t, "the HostedCluster with the new client IDs", func() bool {
		text := hostedCluster()
		for _, id := range changed {
			if !strings.Contains(text, after.GetIdentities()[id].GetClientId()) || strings.Contains(text, before.GetIdentities()[id].GetClientId()) {
				return false
			}
		}
		return true
	})
	credentials := must.Get(armmsi.NewFederatedIdentityCredentialsClient(customerSubscription, r.azure.Tokens, r.azure.Options()))(t)
	for _, account := range []string{"registry", "registry-operator"} {
		if _, err := credentials.Get(ctx, "cust-rg", name(dataPlane), before.GetClusterId()+"-"+account, nil); err != nil {
			t.Errorf("the new identity has no federated credential: %v", err)
		}
	}
}
