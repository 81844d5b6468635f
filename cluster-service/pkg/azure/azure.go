// Package azure creates, checks and deletes the Azure resources of a cluster through the clients of the Azure SDK: a managed
// resource group, DNS, the association of the customer's subnet, federated credentials, a certificate and the credentials of
// identities in Key Vault, and the OpenID documents of the cluster's issuer. It only reads the customer's identities, and the
// sizes and quotas of virtual machines (Capacity).
//
// Steps.Try attempts one step, and is safe for concurrent use. Every step reads first, does what is missing, and can be attempted
// again at any point. It deletes only resources that it can identify as the cluster's own. Worker attempts the steps that are
// due according to the database, several of a cluster at the same time, and stores their outcomes. The state machine is in
// package fleet. OrphanSearcher finds resources of clusters that do not exist any more.
package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/msi-dataplane/pkg/dataplane"
)

// Clients returns the clients of a subscription, or of the service's own vault and storage account.
type Clients interface {
	ResourceGroups(subscription string) (ResourceGroups, error)
	Zones(subscription string) (Zones, error)
	RecordSets(subscription string) (RecordSets, error)
	Resources(subscription string) (Resources, error)
	Identities(subscription string) (Identities, error)
	FederatedCredentials(subscription string) (FederatedCredentials, error)
	RoleAssignments(subscription string) (RoleAssignments, error)
	RoleDefinitions() (RoleDefinitions, error)
	Compute(subscription string) (Compute, error)
	Certificates() (Certificates, error)
	Documents() (Documents, error)
	// IdentityCredentials returns the client of the data plane at the identity URL of a cluster.
	IdentityCredentials(identityURL string) (IdentityCredentials, error)
	// Secrets returns the client of the secrets in the vault with the credentials of identities.
	Secrets() (Secrets, error)
}

// IdentityCredentials has the method of dataplane.Client that the steps use.
type IdentityCredentials interface {
	GetUserAssignedIdentitiesCredentials(ctx context.Context, request dataplane.UserAssignedIdentitiesRequest) (*dataplane.ManagedIdentityCredentials, error)
}

// Secrets has the methods of azsecrets.Client that the steps and the searches for orphans use. None of them reads the value of a secret.
type Secrets interface {
	SetSecret(ctx context.Context, name string, wanted azsecrets.SetSecretParameters, o *azsecrets.SetSecretOptions) (azsecrets.SetSecretResponse, error)
	DeleteSecret(ctx context.Context, name string, o *azsecrets.DeleteSecretOptions) (azsecrets.DeleteSecretResponse, error)
	RecoverDeletedSecret(ctx context.Context, name string, o *azsecrets.RecoverDeletedSecretOptions) (azsecrets.RecoverDeletedSecretResponse, error)
	NewListSecretPropertiesPager(o *azsecrets.ListSecretPropertiesOptions) *runtime.Pager[azsecrets.ListSecretPropertiesResponse]
	NewListSecretPropertiesVersionsPager(name string, o *azsecrets.ListSecretPropertiesVersionsOptions) *runtime.Pager[azsecrets.ListSecretPropertiesVersionsResponse]
}

// ResourceGroups has the methods of armresources.ResourceGroupsClient that the steps and the searches for orphans use.
type ResourceGroups interface {
	Get(ctx context.Context, group string, o *armresources.ResourceGroupsClientGetOptions) (armresources.ResourceGroupsClientGetResponse, error)
	CreateOrUpdate(ctx context.Context, group string, wanted armresources.ResourceGroup, o *armresources.ResourceGroupsClientCreateOrUpdateOptions) (armresources.ResourceGroupsClientCreateOrUpdateResponse, error)
	NewListPager(o *armresources.ResourceGroupsClientListOptions) *runtime.Pager[armresources.ResourceGroupsClientListResponse]
	BeginDelete(ctx context.Context, group string, o *armresources.ResourceGroupsClientBeginDeleteOptions) (*runtime.Poller[armresources.ResourceGroupsClientDeleteResponse], error)
}

// Zones has the methods of armdns.ZonesClient that the steps use.
type Zones interface {
	Get(ctx context.Context, group, zone string, o *armdns.ZonesClientGetOptions) (armdns.ZonesClientGetResponse, error)
	CreateOrUpdate(ctx context.Context, group, zone string, wanted armdns.Zone, o *armdns.ZonesClientCreateOrUpdateOptions) (armdns.ZonesClientCreateOrUpdateResponse, error)
	BeginDelete(ctx context.Context, group, zone string, o *armdns.ZonesClientBeginDeleteOptions) (*runtime.Poller[armdns.ZonesClientDeleteResponse], error)
}

// RecordSets has the methods of armdns.RecordSetsClient that the steps and the searches for orphans use.
type RecordSets interface {
	Get(ctx context.Context, group, zone, name string, kind armdns.RecordType, o *armdns.RecordSetsClientGetOptions) (armdns.RecordSetsClientGetResponse, error)
	CreateOrUpdate(ctx context.Context, group, zone, name string, kind armdns.RecordType, wanted armdns.RecordSet, o *armdns.RecordSetsClientCreateOrUpdateOptions) (armdns.RecordSetsClientCreateOrUpdateResponse, error)
	NewListAllByDNSZonePager(group, zone string, o *armdns.RecordSetsClientListAllByDNSZoneOptions) *runtime.Pager[armdns.RecordSetsClientListAllByDNSZoneResponse]
	Delete(ctx context.Context, group, zone, name string, kind armdns.RecordType, o *armdns.RecordSetsClientDeleteOptions) (armdns.RecordSetsClientDeleteResponse, error)
}

// Resources is the used part of armresources.Client. Subnets are read and written with it, because the package of the typed
// client takes longer to compile than all other packages of the Azure SDK.
type Resources interface {
	GetByID(ctx context.Context, id, apiVersion string, o *armresources.ClientGetByIDOptions) (armresources.ClientGetByIDResponse, error)
	BeginCreateOrUpdateByID(ctx context.Context, id, apiVersion string, wanted armresources.GenericResource, o *armresources.ClientBeginCreateOrUpdateByIDOptions) (*runtime.Poller[armresources.ClientCreateOrUpdateByIDResponse], error)
}

// Identities has the methods of armmsi.UserAssignedIdentitiesClient that the steps and the searches for orphans use.
type Identities interface {
	Get(ctx context.Context, group, name string, o *armmsi.UserAssignedIdentitiesClientGetOptions) (armmsi.UserAssignedIdentitiesClientGetResponse, error)
	NewListBySubscriptionPager(o *armmsi.UserAssignedIdentitiesClientListBySubscriptionOptions) *runtime.Pager[armmsi.UserAssignedIdentitiesClientListBySubscriptionResponse]
}

// FederatedCredentials has the methods of armmsi.FederatedIdentityCredentialsClient that the steps and the searches for orphans use.
type FederatedCredentials interface {
	Get(ctx context.Context, group, identity, name string, o *armmsi.FederatedIdentityCredentialsClientGetOptions) (armmsi.FederatedIdentityCredentialsClientGetResponse, error)
	CreateOrUpdate(ctx context.Context, group, identity, name string, wanted armmsi.FederatedIdentityCredential, o *armmsi.FederatedIdentityCredentialsClientCreateOrUpdateOptions) (armmsi.FederatedIdentityCredentialsClientCreateOrUpdateResponse, error)
	NewListPager(group, identity string, o *armmsi.FederatedIdentityCredentialsClientListOptions) *runtime.Pager[armmsi.FederatedIdentityCredentialsClientListResponse]
	Delete(ctx context.Context, group, identity, name string, o *armmsi.FederatedIdentityCredentialsClientDeleteOptions) (armmsi.FederatedIdentityCredentialsClientDeleteResponse, error)
}

// RoleAssignments has the methods of armauthorization.RoleAssignmentsClient that the steps use.
type RoleAssignments interface {
	NewListForScopePager(scope string, o *armauthorization.RoleAssignmentsClientListForScopeOptions) *runtime.Pager[armauthorization.RoleAssignmentsClientListForScopeResponse]
}

// RoleDefinitions has the methods of armauthorization.RoleDefinitionsClient that the steps use.
type RoleDefinitions interface {
	GetByID(ctx context.Context, id string, o *armauthorization.RoleDefinitionsClientGetByIDOptions) (armauthorization.RoleDefinitionsClientGetByIDResponse, error)
}

// Certificates has the methods of azcertificates.Client that the steps and the searches for orphans use.
type Certificates interface {
	CreateCertificate(ctx context.Context, name string, wanted azcertificates.CreateCertificateParameters, o *azcertificates.CreateCertificateOptions) (azcertificates.CreateCertificateResponse, error)
	GetCertificate(ctx context.Context, name, version string, o *azcertificates.GetCertificateOptions) (azcertificates.GetCertificateResponse, error)
	GetCertificateOperation(ctx context.Context, name string, o *azcertificates.GetCertificateOperationOptions) (azcertificates.GetCertificateOperationResponse, error)
	DeleteCertificateOperation(ctx context.Context, name string, o *azcertificates.DeleteCertificateOperationOptions) (azcertificates.DeleteCertificateOperationResponse, error)
	DeleteCertificate(ctx context.Context, name string, o *azcertificates.DeleteCertificateOptions) (azcertificates.DeleteCertificateResponse, error)
	NewListCertificatePropertiesPager(o *azcertificates.ListCertificatePropertiesOptions) *runtime.Pager[azcertificates.ListCertificatePropertiesResponse]
	RecoverDeletedCertificate(ctx context.Context, name string, o *azcertificates.RecoverDeletedCertificateOptions) (azcertificates.RecoverDeletedCertificateResponse, error)
}

// Documents has the methods of azblob.Client that the steps and the searches for orphans use.
type Documents interface {
	UploadBuffer(ctx context.Context, container, name string, content []byte, o *azblob.UploadBufferOptions) (azblob.UploadBufferResponse, error)
	NewListBlobsFlatPager(container string, o *azblob.ListBlobsFlatOptions) *runtime.Pager[azblob.ListBlobsFlatResponse]
	DeleteBlob(ctx context.Context, container, name string, o *azblob.DeleteBlobOptions) (azblob.DeleteBlobResponse, error)
}
