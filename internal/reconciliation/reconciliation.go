// Package reconciliation compares what Cosmos DB says customers were promised with what Cluster Service holds, and says where the
// two differ. It reads both sides page by page in the order of resource ids and merges them, so that its memory does not grow with
// the region. It decides what a difference is, and changes nothing: the backend mends what can be mended, and admin shows it.
package reconciliation

import (
	"context"
	"fmt"
	"strings"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// DriftType is how a resource differs.
type DriftType string

// The differences.
const (
	// Missing: Cluster Service accepted it, and does not know of it any more.
	Missing DriftType = "Missing"
	// Older: Cluster Service holds an older generation, or release, than it had accepted.
	Older DriftType = "Older"
	// Undeleted: Cluster Service accepted its deletion, and does not know of that any more.
	Undeleted DriftType = "Undeleted"
	// Newer: Cluster Service holds a newer generation than Cosmos DB. Cosmos DB lost that one.
	Newer DriftType = "Newer"
	// Orphan: Cluster Service holds what Cosmos DB does not. Either its deletion was lost there, or Cosmos DB lost it.
	Orphan DriftType = "Orphan"
)

// Drift is one resource that differs.
type Drift struct {
	Type DriftType
	Kind database.Kind
	// Key is of Cosmos DB where the document is known there; else it is made of Cluster Service's resource id.
	Key             database.Key
	UID, ClusterUID string
	// AcceptedGeneration is the generation that Cluster Service had accepted, Held the one that it holds; 0 for none.
	AcceptedGeneration, FleetGeneration int64
}

// Cluster is the lower-case resource id of the cluster that the resource is or belongs to.
func (f *Drift) Cluster() string { return clusterOf(strings.ToLower(f.Key.ResourceID)) }

// clusterOf is the first eight segments of an id and their separators.
func clusterOf(key string) string {
	seen := 0
	for i := range len(key) {
		if key[i] == '/' {
			if seen++; seen == 9 {
				return key[:i]
			}
		}
	}
	return key
}

// DesiredState are Cosmos DB's side; *database.DB is one.
type DesiredState interface {
	SubscriptionsWithClusters(ctx context.Context) ([]string, error)
	DesiredSummaries(ctx context.Context, subscriptionID, after string, limit int) ([]database.DesiredSummary, error)
}

// Inventory is Cluster Service's side; Held is one.
type Inventory interface {
	Inventory(ctx context.Context, token string, limit int) (entries []*clusterservicev1.InventoryEntry, next string, err error)
}

// pageTimeout bounds the reading of a page of Cluster Service's side.
const pageTimeout = 30 * time.Second

// FleetInventory is what a Cluster Service holds.
type FleetInventory struct {
	Client clusterservicev1.ClusterServiceClient
}

// Inventory is a page of what is not gone, in order of resource ids. next is empty on the last one.
func (h FleetInventory) Inventory(ctx context.Context, token string, limit int) (entries []*clusterservicev1.InventoryEntry, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	page, err := h.Client.ListInventory(ctx, &clusterservicev1.ListInventoryRequest{PageSize: int32(limit), PageToken: token})
	return page.GetEntries(), page.GetNextPageToken(), apierror.FromGRPC(err)
}

// Options of a comparison.
type Options struct {
	// Include says whether a subscription is looked at; nil means all.
	Include func(subscriptionID string) bool
	// PageSize is how many of each side are held at a time; 0 means 500.
	PageSize int
	// BetweenPages is called between pages, for who is in no hurry; nil means none.
	BetweenPages func(ctx context.Context) error
}

// Counts are what was compared.
type Counts struct {
	Desired, Fleet int
}

// Compare calls each with every difference, in the order of resource ids: a cluster's before those of what belongs to it. What an
// operation works on does not differ, for that brings it where it belongs; neither does what goes with a cluster that is being
// deleted.
func Compare(ctx context.Context, promises DesiredState, inventory Inventory, options Options, each func(Drift) error) (Counts, error) {
	if options.Include == nil {
		options.Include = func(string) bool { return true }
	}
	if options.PageSize == 0 {
		options.PageSize = 500
	}
	if options.BetweenPages == nil {
		options.BetweenPages = func(context.Context) error { return nil }
	}
	subscriptions, err := promises.SubscriptionsWithClusters(ctx)
	if err != nil {
		return Counts{}, fmt.Errorf("listing subscriptions: %w", err)
	}
	var counts Counts
	p := &promised{from: promises, options: &options, subscriptions: subscriptions}
	h := &held{from: inventory, options: &options, more: true}
	var orphaned string // the cluster that is an orphan: what belongs to it is, too, and is not news
	for {
		// Of the fleet first: what is read of Cosmos DB after that is newer, so that what is in neither was never there.
		entry, err := h.peek(ctx)
		if err != nil {
			return counts, err
		}
		promise, err := p.peek(ctx)
		if err != nil {
			return counts, err
		}
		if entry == nil && promise == nil {
			return counts, nil
		}
		order := 0
		switch {
		case promise == nil:
			order = 1
		case entry == nil:
			order = -1
		default:
			order = strings.Compare(promise.SortKey(), strings.ToLower(entry.GetResourceId()))
		}
		var found []Drift
		if order <= 0 {
			counts.Desired++
			p.page = p.page[1:]
		} else {
			promise = nil
		}
		if order >= 0 {
			counts.Fleet++
			h.page = h.page[1:]
		} else {
			entry = nil
		}
		if entry != nil && (promise == nil || promise.UID != entry.GetUid()) && !entry.GetDeleting() {
			orphan := orphanOf(entry)
			if orphan.Kind == database.ClusterKind {
				orphaned = entry.GetUid()
			}
			if orphan.Kind == database.ClusterKind || orphaned != entry.GetClusterUid() {
				found = append(found, orphan)
			}
		}
		if promise != nil {
			if entry != nil && promise.UID != entry.GetUid() {
				entry = nil
			}
			if f := differs(promise, entry); f != nil {
				found = append(found, *f)
			}
		}
		for _, f := range found {
			if err := each(f); err != nil {
				return counts, err
			}
		}
	}
}

// kinds of the inventory.
var kinds = map[clusterservicev1.InventoryKind]database.Kind{
	clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER:       database.ClusterKind,
	clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL:     database.NodePoolKind,
	clusterservicev1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH: database.ExternalAuthKind,
}

func orphanOf(entry *clusterservicev1.InventoryEntry) Drift {
	key, _ := database.ResourceKey(entry.GetResourceId()) // one that is none is of no subscription that anybody wants
	return Drift{Type: Orphan, Kind: kinds[entry.GetKind()], Key: key, UID: entry.GetUid(), ClusterUID: entry.GetClusterUid(), FleetGeneration: entry.GetGeneration()}
}

// differs compares a resource with what the fleet holds of it, nil for nothing. It is pure.
func differs(p *database.DesiredSummary, entry *clusterservicev1.InventoryEntry) *Drift {
	f := &Drift{Kind: p.Kind, Key: p.Key, UID: p.UID, ClusterUID: p.ClusterUID, AcceptedGeneration: p.Fleet.AcceptedGeneration, FleetGeneration: entry.GetGeneration()}
	deletion := p.Fleet.Phase == clusterservice.PhaseDeleting
	switch {
	case p.ActiveOperationID != "", p.ProvisioningState == hub.Deleting, p.Fleet.AcceptedGeneration == 0:
		// Its operation drives it, or that of its cluster; or Cluster Service never took it, and nothing was promised.
		return nil
	case entry == nil:
		f.Type = Missing
	case deletion && !entry.GetDeleting():
		f.Type = Undeleted
	case entry.GetDeleting():
		// Cosmos DB hears of its end.
		return nil
	case entry.GetGeneration() > p.Generation:
		f.Type = Newer
	case entry.GetGeneration() < p.Fleet.AcceptedGeneration || lowered(p.Fleet.Recovery, entry.GetReleaseVersion()):
		f.Type = Older
	default:
		return nil
	}
	return f
}

// lowered says that a cluster's release is older than it was.
func lowered(r *database.FleetRecovery, held string) bool {
	if r == nil {
		return false
	}
	was, err := release.ParseVersion(r.ReleaseVersion)
	is, heldErr := release.ParseVersion(held)
	return err == nil && heldErr == nil && is.Compare(was) < 0
}

// promised reads Cosmos DB's side, subscription by subscription.
type promised struct {
	from          DesiredState
	options       *Options
	subscriptions []string
	after         string
	page          []database.DesiredSummary
}

// peek is the first that was not taken; nil at the end.
func (p *promised) peek(ctx context.Context) (*database.DesiredSummary, error) {
	for len(p.page) == 0 && len(p.subscriptions) > 0 {
		if !p.options.Include(p.subscriptions[0]) {
			p.subscriptions = p.subscriptions[1:]
			continue
		}
		page, err := p.from.DesiredSummaries(ctx, p.subscriptions[0], p.after, p.options.PageSize)
		if err != nil {
			return nil, fmt.Errorf("reading what was promised: %w", err)
		}
		p.page = page
		if len(page) < p.options.PageSize {
			p.subscriptions, p.after = p.subscriptions[1:], ""
			continue
		}
		p.after = page[len(page)-1].SortKey()
	}
	if len(p.page) == 0 {
		return nil, nil
	}
	return &p.page[0], nil
}

// held reads Cluster Service's side.
type held struct {
	from    Inventory
	options *Options
	token   string
	more    bool
	page    []*clusterservicev1.InventoryEntry
}

func (h *held) peek(ctx context.Context) (*clusterservicev1.InventoryEntry, error) {
	for {
		for len(h.page) > 0 {
			parts := strings.SplitN(h.page[0].GetResourceId(), "/", 4)
			if len(parts) == 4 && h.options.Include(strings.ToLower(parts[2])) {
				return h.page[0], nil
			}
			h.page = h.page[1:]
		}
		if !h.more {
			return nil, nil
		}
		if h.token != "" {
			if err := h.options.BetweenPages(ctx); err != nil {
				return nil, err
			}
		}
		page, next, err := h.from.Inventory(ctx, h.token, h.options.PageSize)
		if err != nil {
			return nil, fmt.Errorf("reading what the fleet holds: %w", err)
		}
		h.page, h.token, h.more = page, next, next != ""
	}
}
