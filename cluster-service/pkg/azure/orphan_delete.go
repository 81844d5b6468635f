package azure

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The reasons of the errors of DeleteOrphan that a repetition does not change.
const (
	ReasonOrphanUnproven = "AZURE_ORPHAN_UNPROVEN"
	ReasonOrphanRefused  = "AZURE_ORPHAN_REFUSED"
)

// currentResource is a resource as Azure has it now.
type currentResource struct {
	claim claim
	// claims is false if the resource does not name a cluster any more.
	claims bool
	// remove deletes the resource, and only the version that was read if Azure supports that. pending is true if Azure has not finished the deletion.
	remove func(ctx context.Context) (pending bool, err error)
}

// DeleteOrphan deletes an orphan in Azure. It reads the resource and its cluster again, and returns an error of the kind FailedPrecondition if the deletion of
// the cluster is not proved any more or Azure permanently refuses the request. pending is true if Azure has not finished the deletion.
func (s *OrphanSearcher) DeleteOrphan(ctx context.Context, o store.AzureOrphan) (effect string, pending bool, err error) {
	current, err := s.readOrphan(ctx, o)
	if err == nil && current != nil {
		if err := s.checkProof(ctx, o, current); err != nil {
			return "", false, err
		}
		pending, err = current.remove(ctx)
	}
	switch {
	case isNotFound(err) || err == nil && current == nil:
		return "No effect: the resource does not exist any more.", false, nil
	case err != nil:
		return "", false, deletionError(err)
	case pending:
		return "Azure is deleting " + o.AzureID + ".", true, nil
	}
	return "Azure has deleted " + o.AzureID + ".", false, nil
}

// deletionError returns the error for a request that Azure did not execute. A changed resource (412) is read again with the next attempt, and a conflict (409) ends
// unless its cause is a lock.
func deletionError(err error) error {
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		switch status := response.StatusCode; {
		case status == http.StatusConflict && response.ErrorCode != "ScopeLocked":
		case slices.Contains([]int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusPreconditionFailed, http.StatusTooManyRequests}, status):
		default:
			return apierror.New(apierror.FailedPrecondition, "Azure refuses the deletion: %s.", describe(err)).WithReason(ReasonOrphanRefused).WithCause(err)
		}
	}
	return apierror.New(apierror.Unavailable, "The resource is not deleted yet: %s.", describe(err)).WithRetryAfter(cmp.Or(retryAfter(err), time.Second)).WithCause(err)
}

// checkProof returns an error unless a resource names the same cluster as the orphan, and this cluster is proved to be deleted. It is stricter than a
// search: no existing cluster may have the UID or the resource ID that the resource names, because customers can change the tag.
func (s *OrphanSearcher) checkProof(ctx context.Context, o store.AzureOrphan, current *currentResource) error {
	unproven := func(format string, values ...any) error {
		return apierror.New(apierror.FailedPrecondition, format, values...).WithReason(ReasonOrphanUnproven)
	}
	if !current.claims {
		return unproven("The resource does not name a cluster any more.")
	}
	known, err := s.incarnations(ctx, []claim{current.claim})
	if err != nil {
		return err
	}
	for _, k := range known {
		if k.GoneTime.IsZero() {
			return unproven("The resource may belong to the existing cluster %s: it names its UID, its cluster ID or its resource ID.", k.UID)
		}
	}
	now, _ := orphanOf(current.claim, known)
	switch {
	case now.ClusterUID != o.ClusterUID || !strings.EqualFold(now.ClusterResourceID, o.ClusterResourceID):
		return unproven("The resource names another cluster than the list. The next search updates the list.")
	case now.Proof == "" && o.Proof == "":
		return unproven("No record proves that the cluster of the resource was deleted. %s", now.Evidence)
	}
	return nil
}

// readOrphan reads the resource of an orphan; nil if Azure does not have it.
func (s *OrphanSearcher) readOrphan(ctx context.Context, o store.AzureOrphan) (*currentResource, error) {
	switch fleet.AzureKind(o.Kind) {
	case fleet.AzureCertificate:
		return s.readCertificate(ctx, azcertificates.ID(o.AzureID))
	case fleet.AzureCredentials:
		return s.readSecret(ctx, azsecrets.ID(o.AzureID))
	case fleet.AzureDocuments:
		return s.readDocument(ctx, o.AzureID)
	}
	id, err := arm.ParseResourceID(o.AzureID)
	if err != nil {
		return nil, err
	}
	switch fleet.AzureKind(o.Kind) {
	case fleet.AzureResourceGroup:
		return s.readGroup(ctx, id)
	case fleet.AzureFederation:
		return s.readCredential(ctx, id)
	}
	return s.readRecordSet(ctx, id)
}

// readGroup reads a resource group. Azure has no conditional deletion of groups, and never changes managedBy.
func (s *OrphanSearcher) readGroup(ctx context.Context, id *arm.ResourceID) (*currentResource, error) {
	groups, err := s.Steps.Clients.ResourceGroups(id.SubscriptionID)
	if err != nil {
		return nil, err
	}
	found, err := groups.Get(ctx, id.ResourceGroupName, nil)
	if err != nil {
		return nil, err
	}
	c, ok := claimOf(s.Steps.Location, &found.ResourceGroup)
	return &currentResource{c, ok, func(ctx context.Context) (bool, error) {
		if provisioning(found.Properties) == "Deleting" {
			return true, nil
		}
		response, err := beginGroupDeletion(ctx, groups, id.ResourceGroupName)
		return isAccepted(response), err
	}}, nil
}

// readCredential reads a federated credential. Azure has no conditional deletion of them.
func (s *OrphanSearcher) readCredential(ctx context.Context, id *arm.ResourceID) (*currentResource, error) {
	credentials, err := s.Steps.Clients.FederatedCredentials(id.SubscriptionID)
	if err != nil {
		return nil, err
	}
	found, err := credentials.Get(ctx, id.ResourceGroupName, id.Parent.Name, id.Name, nil)
	if err != nil {
		return nil, err
	}
	c, ok := claimOfCredential(s.Steps.Region.IssuerBase, &found.FederatedIdentityCredential)
	return &currentResource{c, ok, func(ctx context.Context) (bool, error) {
		_, err := credentials.Delete(ctx, id.ResourceGroupName, id.Parent.Name, id.Name, nil)
		return false, err
	}}, nil
}

func (s *OrphanSearcher) readRecordSet(ctx context.Context, id *arm.ResourceID) (*currentResource, error) {
	records, err := s.Steps.Clients.RecordSets(s.Steps.Config.SubscriptionID)
	if err != nil {
		return nil, err
	}
	group, zone, kind := s.Steps.Config.ResourceGroup, s.Steps.Region.BaseDomain, armdns.RecordType(strings.ToUpper(id.ResourceType.Types[len(id.ResourceType.Types)-1]))
	found, err := records.Get(ctx, group, zone, id.Name, kind, nil)
	if err != nil {
		return nil, err
	}
	c, ok := claimOfRecords(&found.RecordSet)
	return &currentResource{c, ok, func(ctx context.Context) (bool, error) {
		_, err := records.Delete(ctx, group, zone, id.Name, kind, &armdns.RecordSetsClientDeleteOptions{IfMatch: found.Etag})
		return false, err
	}}, nil
}

// readCertificate reads a certificate. Key Vault has no conditional deletion. It purges a deleted certificate after its retention period; until then it can be
// recovered.
func (s *OrphanSearcher) readCertificate(ctx context.Context, id azcertificates.ID) (*currentResource, error) {
	vault, err := s.Steps.Clients.Certificates()
	if err != nil {
		return nil, err
	}
	found, err := vault.GetCertificate(ctx, id.Name(), "", nil)
	if err != nil {
		return nil, err
	}
	c, ok := claimInVault(fleet.AzureCertificate, found.ID, found.Tags)
	return &currentResource{c, ok, func(ctx context.Context) (bool, error) {
		_, err := vault.DeleteCertificate(ctx, id.Name(), nil)
		return false, err
	}}, nil
}

// readSecret reads the newest version of a secret, without its value. Its deletion is that of a certificate.
func (s *OrphanSearcher) readSecret(ctx context.Context, id azsecrets.ID) (*currentResource, error) {
	vault, err := s.Steps.Clients.Secrets()
	if err != nil {
		return nil, err
	}
	newest, err := newestVersion(ctx, vault, id.Name())
	if err != nil || newest == nil {
		return nil, err
	}
	c, ok := claimInVault(fleet.AzureCredentials, newest.ID, newest.Tags)
	return &currentResource{c, ok, func(ctx context.Context) (bool, error) {
		_, err := vault.DeleteSecret(ctx, id.Name(), nil)
		return false, err
	}}, nil
}

func (s *OrphanSearcher) readDocument(ctx context.Context, url string) (current *currentResource, err error) {
	documents, err := s.Steps.Clients.Documents()
	if err != nil {
		return nil, err
	}
	at := s.Steps.Config.Documents
	base := at.Account + "/" + at.Container
	name := strings.TrimPrefix(url, base+"/")
	pager := documents.NewListBlobsFlatPager(at.Container, &azblob.ListBlobsFlatOptions{Prefix: to.Ptr(name)})
	err = eachPage(ctx, pager, func(page azblob.ListBlobsFlatResponse) error {
		for _, b := range page.Segment.BlobItems {
			if *b.Name == name {
				c, ok := claimOfDocument(base, name)
				current = &currentResource{c, ok, func(ctx context.Context) (bool, error) { return false, deleteDocument(ctx, documents, at.Container, b) }}
			}
		}
		return nil
	})
	return current, err
}

// deleteDocument deletes a blob if it has not changed since it was listed.
func deleteDocument(ctx context.Context, documents Documents, in string, b *container.BlobItem) error {
	_, err := documents.DeleteBlob(ctx, in, *b.Name, &azblob.DeleteBlobOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: b.Properties.ETag}}})
	return err
}
