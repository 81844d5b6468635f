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

// federation is an identity of the data plane with the federated credentials that it needs.
type federation struct {
	identity *arm.ResourceID
	client   FederatedCredentials
	wanted   []federatedCredential
	// full reports that the identity has no place for all of them.
	full bool
}

// federatedCredential is the name of a credential, and the subject of the tokens that it accepts.
type federatedCredential struct{ name, subject string }

// eachFederation calls do for the identities of the data plane at the same time. do writes the credentials of its identity one after the other,
// because Azure rejects concurrent writes of one identity's credentials.
func (a *attempt) eachFederation(do func(f *federation) error) ([]*federation, error) {
	var all []*federation
	for _, s := range subjects {
		id := a.cluster.Spec.GetPlatform().GetDataPlaneOperators()[s.operator]
		if id == "" {
			continue
		}
		parsed, err := arm.ParseResourceID(id)
		if err != nil {
			return nil, fmt.Errorf("the resource ID %q of an identity is malformed", id)
		}
		at := slices.IndexFunc(all, func(f *federation) bool { return strings.EqualFold(f.identity.String(), parsed.String()) })
		if at < 0 {
			client, err := a.Clients.FederatedCredentials(parsed.SubscriptionID)
			if err != nil {
				return nil, err
			}
			all, at = append(all, &federation{identity: parsed, client: client}), len(all)
		}
		all[at].wanted = append(all[at].wanted, federatedCredential{a.cluster.ID() + "-" + s.short, "system:serviceaccount:" + s.account})
	}
	return all, concurrently(all, do)
}

// createFederation creates the federated credentials of the cluster. If identities have no place for them, it creates those of
// the other identities, stores the properties that name the full ones as a fact, and returns an error that names them.
func (a *attempt) createFederation(ctx context.Context) error {
	issuer := a.Region.Issuer(a.cluster)
	a.outcome.Facts = map[string]string{fleet.AzureIdentitiesFull: ""}
	all, err := a.eachFederation(func(f *federation) error {
		for _, c := range f.wanted {
			_, err := f.client.CreateOrUpdate(ctx, f.identity.ResourceGroupName, f.identity.Name, c.name, armmsi.FederatedIdentityCredential{
				Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(issuer), Subject: to.Ptr(c.subject), Audiences: []*string{to.Ptr(federatedAudience)}}}, nil)
			if hasStatus(err, http.StatusConflict) {
				full, listed := f.isFull(ctx, c.name)
				f.full = full
				if full || listed != nil {
					return listed
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var full []string
	for _, f := range all {
		if f.full {
			full = append(full, strings.ToLower(f.identity.String()))
		}
	}
	if len(full) == 0 {
		a.done()
		return nil
	}
	properties := a.cluster.DataPlaneProperties(full)
	a.outcome.Facts[fleet.AzureIdentitiesFull] = strings.Join(properties, ", ")
	return fmt.Errorf("the customer must act: the identities of %s already have %d federated credentials, the limit of Azure",
		strings.Join(properties, ", "), clusterstatus.MaxFederatedCredentials)
}

// isFull reports whether the identity has as many federated credentials as Azure allows and none with the given name. Azure
// returns 409 in this case, and also for concurrent writes, with the same code.
func (f *federation) isFull(ctx context.Context, name string) (bool, error) {
	n := 0
	for pager := f.client.NewListPager(f.identity.ResourceGroupName, f.identity.Name, nil); pager.More(); {
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
	_, err := a.eachFederation(func(f *federation) error {
		for _, c := range f.wanted {
			if _, err := f.client.Delete(ctx, f.identity.ResourceGroupName, f.identity.Name, c.name, nil); err != nil && !isNotFound(err) {
				return err
			}
		}
		return nil
	})
	return a.finish(err)
}
