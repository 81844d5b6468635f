package azure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// searchPeriod is the mean period of the searches of a scope.
	searchPeriod = 6 * time.Hour
	// searchLease is the maximum duration of a search, and the time after which a failed or interrupted one is repeated.
	searchLease = 15 * time.Minute
	// searchOverdue is the time without a complete search of a scope after which it counts as overdue.
	searchOverdue = 24 * time.Hour
	// searchScan is the period at which the database is read for scopes that are due.
	searchScan = time.Minute
	// OrphanGrace is the time between the first and the last search that found a resource, from which on it is reported as an orphan.
	OrphanGrace = time.Hour
	// The scopes of the region's zone, vault and storage account. All other scopes are IDs of subscriptions.
	zoneScope      = "dns-zone"
	vaultScope     = "key-vault"
	documentsScope = "oidc-documents"
)

// orphanKinds returns the kinds of resources that are searched.
func orphanKinds() []fleet.AzureKind {
	return []fleet.AzureKind{fleet.AzureResourceGroup, fleet.AzureDNSDelegation, fleet.AzureAPIRecord, fleet.AzureServiceRecords, fleet.AzureCertificate, fleet.AzureCredentials, fleet.AzureDocuments, fleet.AzureFederation}
}

// OrphanSearcherOptions configure an OrphanSearcher.
type OrphanSearcherOptions struct {
	Store *store.Store
	Steps *Steps
	// Interval is the period at which the database is read for scopes that are due; 0 means a minute.
	Interval time.Duration
	Metrics  prometheus.Registerer
	Log      *slog.Logger
}

// OrphanSearcher finds resources in Azure that belong to no cluster, and stores them. Only DeleteOrphan deletes one. Replicas share the
// scopes: the database has the time of the next search of each of them.
type OrphanSearcher struct {
	OrphanSearcherOptions
	orphans *prometheus.GaugeVec
	overdue prometheus.Gauge
}

// NewOrphanSearcher returns a searcher and registers its metrics. Run makes it work.
func NewOrphanSearcher(o OrphanSearcherOptions) *OrphanSearcher {
	if o.Interval == 0 {
		o.Interval = searchScan
	}
	s := &OrphanSearcher{OrphanSearcherOptions: o,
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_azure_orphans",
			Help: "Resources in Azure that belong to no cluster, by kind. Every replica counts all of them."}, []string{"kind"}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_azure_searches_overdue",
			Help: "Subscriptions, and zone, vault and storage account of the region, without a complete search for resources that belong to no cluster for a day. Every replica counts all of them."})}
	for _, kind := range orphanKinds() {
		s.orphans.WithLabelValues(string(kind)).Set(0)
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(s.orphans, s.overdue)
	}
	return s
}

// Run searches the scopes that are due until ctx ends.
func (s *OrphanSearcher) Run(ctx context.Context) {
	pass.Repeat(ctx, nil, func(ctx context.Context) time.Duration {
		if err := s.pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("searching for orphans in Azure failed", logkey.Error, err)
		}
		return s.Interval
	})
}

// pass searches the scopes that are due, one after the other, and updates the metrics.
func (s *OrphanSearcher) pass(ctx context.Context) error {
	for ctx.Err() == nil {
		scope, err := s.Store.AcquireAzureSearch(ctx, searchLease)
		if err != nil {
			return err
		}
		if scope == "" {
			break
		}
		if err := s.search(ctx, scope); err != nil && ctx.Err() == nil {
			s.Log.Warn("searching a scope for orphans in Azure failed; it will be repeated", logkey.Key, scope, logkey.Error, describe(err))
		}
	}
	counts, overdue, err := s.Store.CountAzureOrphans(ctx, OrphanGrace, s.Store.Now().Add(-searchOverdue))
	if err != nil {
		return err
	}
	for _, kind := range orphanKinds() {
		s.orphans.WithLabelValues(string(kind)).Set(float64(counts[string(kind)]))
	}
	s.overdue.Set(float64(overdue))
	return nil
}

// search reads the resources of a scope page by page, and stores the orphans. Cluster Service stores a cluster before it creates resources
// for it. So a resource that belongs to no cluster when its page has been read belongs to none.
func (s *OrphanSearcher) search(ctx context.Context, scope string) error {
	ctx, cancel := context.WithTimeout(ctx, searchLease)
	defer cancel()
	begin := s.Store.Now()
	read, own := s.readSubscription, true
	switch scope {
	case zoneScope:
		read = s.readRecords
	case vaultScope:
		read = s.readVaults
	case documentsScope:
		read = s.readDocuments
	default:
		own = false
	}
	found := 0
	err := read(ctx, scope, func(claims []claim) error {
		orphans, err := s.orphansAmong(ctx, claims)
		if err != nil {
			return err
		}
		omitted, err := s.Store.SaveAzureOrphans(ctx, scope, orphans)
		if err == nil && omitted > 0 {
			err = errors.New("the region has too many orphans in Azure to store more of them")
		}
		found += len(orphans)
		return err
	})
	if !own && (hasStatus(err, http.StatusForbidden) || hasStatus(err, http.StatusNotFound)) {
		// The subscription is deleted, or its owner has removed the rights of the service.
		forgotten, failure := s.Store.ForgetAzureSubscription(ctx, scope)
		if forgotten || failure != nil {
			return failure
		}
	}
	if err != nil {
		return err
	}
	if found > 0 {
		s.Log.Warn("resources in Azure belong to no cluster", logkey.Key, scope, logkey.Count, found)
	}
	return s.Store.CompleteAzureSearch(ctx, scope, begin, backoff.Jitter(searchPeriod))
}

// readSubscription calls each with the claims of each page of the resource groups of a subscription, and of the federated credentials of each
// of its identities.
func (s *OrphanSearcher) readSubscription(ctx context.Context, subscription string, each func([]claim) error) error {
	return errors.Join(s.readGroups(ctx, subscription, each), s.readCredentials(ctx, subscription, each))
}

// readCredentials calls each with the claims of each page of the federated credentials of the identities of a subscription.
func (s *OrphanSearcher) readCredentials(ctx context.Context, subscription string, each func([]claim) error) error {
	identities, err := s.Steps.Clients.Identities(subscription)
	if err != nil {
		return err
	}
	credentials, err := s.Steps.Clients.FederatedCredentials(subscription)
	if err != nil {
		return err
	}
	return eachPage(ctx, identities.NewListBySubscriptionPager(nil), func(page armmsi.UserAssignedIdentitiesClientListBySubscriptionResponse) error {
		for _, identity := range page.Value {
			id, err := arm.ParseResourceID(*identity.ID)
			if err != nil {
				return err
			}
			err = eachPage(ctx, credentials.NewListPager(id.ResourceGroupName, id.Name, nil), func(page armmsi.FederatedIdentityCredentialsClientListResponse) error {
				return each(claimsOf(page.Value, func(f *armmsi.FederatedIdentityCredential) (claim, bool) {
					return claimOfCredential(s.Steps.Region.IssuerBase, f)
				}))
			})
			if err != nil && !isNotFound(err) { // the identity was deleted meanwhile
				return err
			}
		}
		return nil
	})
}

// readGroups calls each with the claims of each page of the resource groups of a subscription.
func (s *OrphanSearcher) readGroups(ctx context.Context, subscription string, each func([]claim) error) error {
	groups, err := s.Steps.Clients.ResourceGroups(subscription)
	if err != nil {
		return err
	}
	return eachPage(ctx, groups.NewListPager(nil), func(page armresources.ResourceGroupsClientListResponse) error {
		return each(claimsOf(page.Value, func(g *armresources.ResourceGroup) (claim, bool) { return claimOf(s.Steps.Location, g) }))
	})
}

// readRecords calls each with the claims of each page of the record sets in the region's zone.
func (s *OrphanSearcher) readRecords(ctx context.Context, _ string, each func([]claim) error) error {
	records, err := s.Steps.Clients.RecordSets(s.Steps.Config.SubscriptionID)
	if err != nil {
		return err
	}
	pager := records.NewListAllByDNSZonePager(s.Steps.Config.ResourceGroup, s.Steps.Region.BaseDomain, nil)
	return eachPage(ctx, pager, func(page armdns.RecordSetsClientListAllByDNSZoneResponse) error {
		return each(claimsOf(page.Value, claimOfRecords))
	})
}

// readVaults calls each with the claims of each page of the certificates in the region's vault, and of the secrets in that of the identities.
func (s *OrphanSearcher) readVaults(ctx context.Context, scope string, each func([]claim) error) error {
	return errors.Join(s.readCertificates(ctx, scope, each), s.readSecrets(ctx, each))
}

func (s *OrphanSearcher) readSecrets(ctx context.Context, each func([]claim) error) error {
	if s.Steps.Config.ManagedIdentities == nil {
		return nil
	}
	vault, err := s.Steps.Clients.Secrets()
	if err != nil {
		return err
	}
	return eachPage(ctx, vault.NewListSecretPropertiesPager(nil), func(page azsecrets.ListSecretPropertiesResponse) error {
		return each(claimsOf(page.Value, func(p *azsecrets.SecretProperties) (claim, bool) {
			return claimInVault(fleet.AzureCredentials, p.ID, p.Tags)
		}))
	})
}

// readCertificates calls each with the claims of each page of the certificates in the region's vault.
func (s *OrphanSearcher) readCertificates(ctx context.Context, _ string, each func([]claim) error) error {
	if s.Steps.Config.Vault == "" {
		return nil
	}
	certificates, err := s.Steps.Clients.Certificates()
	if err != nil {
		return err
	}
	pager := certificates.NewListCertificatePropertiesPager(&azcertificates.ListCertificatePropertiesOptions{IncludePending: to.Ptr(true)})
	return eachPage(ctx, pager, func(page azcertificates.ListCertificatePropertiesResponse) error {
		return each(claimsOf(page.Value, func(p *azcertificates.CertificateProperties) (claim, bool) {
			return claimInVault(fleet.AzureCertificate, p.ID, p.Tags)
		}))
	})
}

// readDocuments calls each with the claims of each page of the blobs in the region's container of documents.
func (s *OrphanSearcher) readDocuments(ctx context.Context, _ string, each func([]claim) error) error {
	documents, err := s.Steps.Clients.Documents()
	if err != nil {
		return err
	}
	at := s.Steps.Config.Documents
	return eachPage(ctx, documents.NewListBlobsFlatPager(at.Container, nil), func(page azblob.ListBlobsFlatResponse) error {
		if page.Segment == nil {
			return nil
		}
		return each(claimsOf(page.Segment.BlobItems, func(b *container.BlobItem) (claim, bool) {
			return claimOfDocument(at.Account+"/"+at.Container, *b.Name)
		}))
	})
}

// eachPage calls each with each page of a list.
func eachPage[T any](ctx context.Context, pager *runtime.Pager[T], each func(page T) error) error {
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err == nil {
			err = each(page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claimsOf returns the claims of the resources that have one.
func claimsOf[T any](resources []T, claimOf func(T) (claim, bool)) []claim {
	var claims []claim
	for _, resource := range resources {
		if c, ok := claimOf(resource); ok {
			claims = append(claims, c)
		}
	}
	return claims
}

// orphansAmong returns the claimed resources that belong to no cluster.
func (s *OrphanSearcher) orphansAmong(ctx context.Context, claims []claim) (orphans []store.AzureOrphan, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	known, err := s.incarnations(ctx, claims)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if o, ok := orphanOf(c, known); ok {
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}

// incarnations returns the clusters and the tombstones that resources name.
func (s *OrphanSearcher) incarnations(ctx context.Context, claims []claim) ([]store.ClusterIncarnation, error) {
	var uids, clusterIDs, resourceIDs []string
	for _, c := range claims {
		if c.uid != "" {
			uids = append(uids, c.uid)
		}
		if c.clusterID != "" {
			clusterIDs = append(clusterIDs, c.clusterID)
		}
		if c.resourceID != "" {
			resourceIDs = append(resourceIDs, c.resourceID)
		}
	}
	known, err := s.Store.ClusterIncarnations(ctx, uids, clusterIDs, resourceIDs)
	if err != nil {
		return nil, fmt.Errorf("comparing resources in Azure with the clusters: %w", err)
	}
	return known, nil
}
