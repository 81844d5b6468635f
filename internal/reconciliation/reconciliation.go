// Package reconciliation finds drift: resources for which the desired state in Cosmos DB and the state in Cluster
// Service differ. It reads both sides page by page in the order of resource IDs and merges them, so that its memory
// does not grow with the region. It only reports drift. The backend repairs what can be repaired, and admin shows it.
package reconciliation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// DriftType is the kind of a difference.
type DriftType string

// The types of drift.
const (
	// Missing: Cluster Service had accepted the resource and does not have it.
	Missing DriftType = "Missing"
	// Older: Cluster Service has an older generation or release than it had accepted.
	Older DriftType = "Older"
	// Undeleted: Cluster Service had accepted the deletion, and the resource is not being deleted.
	Undeleted DriftType = "Undeleted"
	// Newer: Cluster Service has a newer generation than Cosmos DB, which has lost it.
	Newer DriftType = "Newer"
	// Orphan: Cluster Service has a resource that Cosmos DB does not have. Either Cluster Service lost its deletion, or
	// Cosmos DB lost the resource.
	Orphan DriftType = "Orphan"
)

// Drift is a resource for which the two sides differ.
type Drift struct {
	Type DriftType
	Kind database.Kind
	// Key is the document's key, or is made from Cluster Service's resource ID if there is no document.
	Key             database.Key
	UID, ClusterUID string
	// AcceptedGeneration is the generation that Cluster Service had accepted, FleetGeneration the one that it has; 0
	// means none.
	AcceptedGeneration, FleetGeneration int64
}

// Cluster returns the lower-case resource ID of the resource's cluster.
func (d *Drift) Cluster() string {
	id, err := arm.ParseResourceID(d.Key.ResourceID)
	if err != nil {
		return strings.ToLower(d.Key.ResourceID)
	}
	for len(id.ResourceType.Types) > 1 {
		id = id.Parent
	}
	return strings.ToLower(id.String())
}

// DesiredState reads Cosmos DB's side. *database.DB implements it.
type DesiredState interface {
	SubscriptionsWithClusters(ctx context.Context) ([]string, error)
	DesiredSummaries(ctx context.Context, subscriptionID, after string, limit int) ([]database.DesiredSummary, error)
}

// Inventory reads Cluster Service's side. FleetInventory implements it.
type Inventory interface {
	Inventory(ctx context.Context, token string, limit int) (entries []*clusterservicev1.InventoryEntry, next string, err error)
}

// pageTimeout bounds the reading of one page from Cluster Service.
const pageTimeout = 30 * time.Second

// FleetInventory reads the inventory of a Cluster Service.
type FleetInventory struct {
	Client clusterservicev1.ClusterServiceClient
}

// Inventory returns a page of all resources that are not deleted, in order of resource IDs. next is empty on the last
// page.
func (i FleetInventory) Inventory(ctx context.Context, token string, limit int) (entries []*clusterservicev1.InventoryEntry, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	page, err := i.Client.ListInventory(ctx, &clusterservicev1.ListInventoryRequest{PageSize: int32(limit), PageToken: token})
	return page.GetEntries(), page.GetNextPageToken(), apierror.FromGRPC(err)
}

// Options configure a comparison.
type Options struct {
	// Include reports whether to compare a subscription; nil includes all.
	Include func(subscriptionID string) bool
	// PageSize is how many resources of each side are read at a time; 0 means 500.
	PageSize int
	// BetweenPages is called between pages, for callers that want to limit the load; nil means no pause.
	BetweenPages func(ctx context.Context) error
}

// Counts are the numbers of compared resources on each side.
type Counts struct {
	Desired, Fleet int
}

// Compare calls each for every drift, in the order of resource IDs: a cluster comes before its children. A resource
// with an active operation is not drift, because the operation changes it. Neither are the children of a cluster that
// is being deleted.
func Compare(ctx context.Context, desired DesiredState, inventory Inventory, options Options, each func(Drift) error) (Counts, error) {
	if options.Include == nil {
		options.Include = func(string) bool { return true }
	}
	if options.PageSize == 0 {
		options.PageSize = 500
	}
	if options.BetweenPages == nil {
		options.BetweenPages = func(context.Context) error { return nil }
	}
	subscriptions, err := desired.SubscriptionsWithClusters(ctx)
	if err != nil {
		return Counts{}, fmt.Errorf("listing subscriptions: %w", err)
	}
	var counts Counts
	documents := &desiredReader{from: desired, options: &options, subscriptions: subscriptions}
	fleet := &fleetReader{from: inventory, options: &options, more: true}
	var orphaned string // UID of the last orphaned cluster; its children are not reported
	for {
		// Cluster Service is read first, so that Cosmos DB's state is the newer one. A resource is created in Cosmos DB first,
		// so one that is created in between is not an orphan.
		entry, err := fleet.peek(ctx)
		if err != nil {
			return counts, err
		}
		summary, err := documents.peek(ctx)
		if err != nil {
			return counts, err
		}
		if entry == nil && summary == nil {
			return counts, nil
		}
		order := 0
		switch {
		case summary == nil:
			order = 1
		case entry == nil:
			order = -1
		default:
			order = strings.Compare(summary.SortKey(), strings.ToLower(entry.GetResourceId()))
		}
		var drifts []Drift
		if order <= 0 {
			counts.Desired++
			documents.page = documents.page[1:]
		} else {
			summary = nil
		}
		if order >= 0 {
			counts.Fleet++
			fleet.page = fleet.page[1:]
		} else {
			entry = nil
		}
		if entry != nil && (summary == nil || summary.UID != entry.GetUid()) && !entry.GetDeleting() {
			orphan, err := orphanOf(entry)
			if err != nil {
				return counts, err
			}
			if orphan.Kind == database.ClusterKind {
				orphaned = entry.GetUid()
			}
			if orphan.Kind == database.ClusterKind || orphaned != entry.GetClusterUid() {
				drifts = append(drifts, orphan)
			}
		}
		if summary != nil {
			if entry != nil && summary.UID != entry.GetUid() {
				entry = nil
			}
			if drift := compare(summary, entry); drift != nil {
				drifts = append(drifts, *drift)
			}
		}
		for _, drift := range drifts {
			if err := each(drift); err != nil {
				return counts, err
			}
		}
	}
}

// orphanOf returns the drift of a resource that Cosmos DB does not have.
func orphanOf(entry *clusterservicev1.InventoryEntry) (Drift, error) {
	kind, err := kindOf(entry.GetKind())
	if err != nil {
		return Drift{}, fmt.Errorf("reading the inventory of the fleet: resource %s: kind: %w", entry.GetResourceId(), err)
	}
	key, err := database.ResourceKey(entry.GetResourceId())
	return Drift{Type: Orphan, Kind: kind, Key: key, UID: entry.GetUid(), ClusterUID: entry.GetClusterUid(), FleetGeneration: entry.GetGeneration()}, err
}

// kindOf returns the kind of documents for a kind of the inventory.
func kindOf(kind clusterservicev1.InventoryKind) (database.Kind, error) {
	switch kind {
	case clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER:
		return database.ClusterKind, nil
	case clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL:
		return database.NodePoolKind, nil
	case clusterservicev1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH:
		return database.ExternalAuthKind, nil
	case clusterservicev1.InventoryKind_INVENTORY_KIND_UNSPECIFIED:
	}
	return "", fmt.Errorf("unsupported value %s: supported values are %s, %s, %s", kind, clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER,
		clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL, clusterservicev1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH)
}

// compare returns the drift of a resource, or nil. It is pure. entry is nil if Cluster Service does not have the
// resource.
func compare(s *database.DesiredSummary, entry *clusterservicev1.InventoryEntry) *Drift {
	drift := &Drift{Kind: s.Kind, Key: s.Key, UID: s.UID, ClusterUID: s.ClusterUID, AcceptedGeneration: s.Fleet.AcceptedGeneration, FleetGeneration: entry.GetGeneration()}
	deletion := s.Fleet.Phase == clusterservice.PhaseDeleting
	switch {
	case s.ActiveOperationID != "", s.ProvisioningState == hub.Deleting, s.Fleet.AcceptedGeneration == 0:
		// An operation of the resource or of its cluster changes it, or Cluster Service never accepted it.
		return nil
	case entry == nil:
		drift.Type = Missing
	case deletion && !entry.GetDeleting():
		drift.Type = Undeleted
	case entry.GetDeleting():
		// The watch reports the end of the deletion.
		return nil
	case entry.GetGeneration() > s.Generation:
		drift.Type = Newer
	case entry.GetGeneration() < s.Fleet.AcceptedGeneration || releaseLowered(s.Fleet.Recovery, entry.GetReleaseVersion()):
		drift.Type = Older
	default:
		return nil
	}
	return drift
}

// releaseLowered reports whether a cluster's release is older than the recorded one.
func releaseLowered(r *database.FleetRecovery, fleetVersion string) bool {
	if r == nil {
		return false
	}
	was, err := release.ParseVersion(r.ReleaseVersion)
	is, fleetErr := release.ParseVersion(fleetVersion)
	return err == nil && fleetErr == nil && is.Compare(was) < 0
}

// desiredReader reads Cosmos DB's side, subscription by subscription.
type desiredReader struct {
	from          DesiredState
	options       *Options
	subscriptions []string
	after         string
	page          []database.DesiredSummary
}

// peek returns the first summary that was not consumed, or nil at the end.
func (d *desiredReader) peek(ctx context.Context) (*database.DesiredSummary, error) {
	for len(d.page) == 0 && len(d.subscriptions) > 0 {
		if !d.options.Include(d.subscriptions[0]) {
			d.subscriptions = d.subscriptions[1:]
			continue
		}
		page, err := d.from.DesiredSummaries(ctx, d.subscriptions[0], d.after, d.options.PageSize)
		if err != nil {
			return nil, fmt.Errorf("reading the desired state: %w", err)
		}
		d.page = page
		if len(page) < d.options.PageSize {
			d.subscriptions, d.after = d.subscriptions[1:], ""
			continue
		}
		d.after = page[len(page)-1].SortKey()
	}
	if len(d.page) == 0 {
		return nil, nil
	}
	return &d.page[0], nil
}

// fleetReader reads Cluster Service's side.
type fleetReader struct {
	from    Inventory
	options *Options
	token   string
	more    bool
	page    []*clusterservicev1.InventoryEntry
}

func (r *fleetReader) peek(ctx context.Context) (*clusterservicev1.InventoryEntry, error) {
	for {
		for len(r.page) > 0 {
			key, err := database.ResourceKey(r.page[0].GetResourceId())
			if err == nil && r.options.Include(key.SubscriptionID) {
				return r.page[0], nil
			}
			r.page = r.page[1:]
		}
		if !r.more {
			return nil, nil
		}
		if r.token != "" {
			if err := r.options.BetweenPages(ctx); err != nil {
				return nil, err
			}
		}
		page, next, err := r.from.Inventory(ctx, r.token, r.options.PageSize)
		if err != nil {
			return nil, fmt.Errorf("reading the inventory of the fleet: %w", err)
		}
		r.page, r.token, r.more = page, next, next != ""
	}
}
