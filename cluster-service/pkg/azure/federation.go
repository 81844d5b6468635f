package azure

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// subjects are the service accounts of OpenShift that use the data plane identities.
var subjects = []struct{ operator, short, account string }{
	{"disk-csi-driver", "disk-operator", "openshift-cluster-csi-drivers:azure-disk-csi-driver-operator"},
	{"disk-csi-driver", "disk-controller", "openshift-cluster-csi-drivers:azure-disk-csi-driver-controller-sa"},
	{"disk-csi-driver", "disk-node", "openshift-cluster-csi-drivers:azure-disk-csi-driver-node-sa"},
	{"file-csi-driver", "file-operator", "openshift-cluster-csi-drivers:azure-file-csi-driver-operator"},
	{"file-csi-driver", "file-controller", "openshift-cluster-csi-drivers:azure-file-csi-driver-controller-sa"},
	{"file-csi-driver", "file-node", "openshift-cluster-csi-drivers:azure-file-csi-driver-node-sa"},
	{"image-registry", "registry", "openshift-image-registry:registry"},
	{"image-registry", "registry-operator", "openshift-image-registry:cluster-image-registry-operator"},
}

// federatedAudience is the audience of the service account tokens that are exchanged.
const federatedAudience = "openshift"

// eachCredential calls do for each federated credential of the cluster, one after the other, because Azure rejects concurrent
// writes of one identity's credentials.
func (a *attempt) eachCredential(do func(credentials FederatedCredentials, identity *arm.ResourceID, name, subject string) error) error {
	for _, s := range subjects {
		id := a.cluster.Spec.GetPlatform().GetDataPlaneOperators()[s.operator]
		if id == "" {
			continue
		}
		parsed, err := arm.ParseResourceID(id)
		if err != nil {
			return fmt.Errorf("the resource ID %q of an identity is malformed", id)
		}
		credentials, err := a.Clients.FederatedCredentials(parsed.SubscriptionID)
		if err != nil {
			return err
		}
		if err := do(credentials, parsed, a.cluster.ID()+"-"+s.short, "system:serviceaccount:"+s.account); err != nil {
			return err
		}
	}
	a.done()
	return nil
}

// createFederation creates the federated credentials of the cluster. If identities have no place for them, it creates those of
// the other identities, stores the properties that name the full ones as a fact, and returns an error that names them.
func (a *attempt) createFederation(ctx context.Context) error {
	issuer := a.Region.Issuer(a.cluster)
	a.outcome.Facts = map[string]string{fleet.AzureIdentitiesFull: ""}
	var full []string
	err := a.eachCredential(func(credentials FederatedCredentials, identity *arm.ResourceID, name, subject string) error {
		if slices.Contains(full, strings.ToLower(identity.String())) {
			return nil
		}
		_, err := credentials.CreateOrUpdate(ctx, identity.ResourceGroupName, identity.Name, name, armmsi.FederatedIdentityCredential{
			Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(issuer), Subject: to.Ptr(subject), Audiences: []*string{to.Ptr(federatedAudience)}}}, nil)
		if !hasStatus(err, http.StatusConflict) {
			return err
		}
		noPlace, listed := isFull(ctx, credentials, identity, name)
		if listed != nil {
			return listed
		}
		if !noPlace {
			return err
		}
		full = append(full, strings.ToLower(identity.String()))
		return nil
	})
	if err != nil || len(full) == 0 {
		return err
	}
	properties := a.cluster.DataPlaneProperties(full)
	a.outcome.Facts[fleet.AzureIdentitiesFull] = strings.Join(properties, ", ")
	return fmt.Errorf("the customer must act: the identities of %s already have %d federated credentials, the limit of Azure",
		strings.Join(properties, ", "), clusterstatus.MaxFederatedCredentials)
}

// isFull reports whether an identity has as many federated credentials as Azure allows and none with the given name. Azure
// returns 409 in this case, and also for concurrent writes, with the same code.
func isFull(ctx context.Context, credentials FederatedCredentials, identity *arm.ResourceID, name string) (bool, error) {
	n := 0
	for pager := credentials.NewListPager(identity.ResourceGroupName, identity.Name, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return false, err
		}
		for _, credential := range page.Value {
			if credential != nil && credential.Name != nil && strings.EqualFold(*credential.Name, name) {
				return false, nil
			}
			n++
		}
	}
	return n >= clusterstatus.MaxFederatedCredentials, nil
}

func (a *attempt) removeFederation(ctx context.Context) error {
	return a.eachCredential(func(credentials FederatedCredentials, identity *arm.ResourceID, name, _ string) error {
		if _, err := credentials.Delete(ctx, identity.ResourceGroupName, identity.Name, name, nil); err != nil && !isNotFound(err) {
			return err
		}
		return nil
	})
}
