package reconciliation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// sides are what is promised and held, in order.
type sides struct {
	promises []database.DesiredSummary
	entries  []*clusterservicev1.InventoryEntry
}

func (s *sides) SubscriptionsWithClusters(context.Context) ([]string, error) {
	var subscriptions []string
	for _, p := range s.promises {
		if p.Kind == database.ClusterKind && !slices.Contains(subscriptions, p.Key.SubscriptionID) {
			subscriptions = append(subscriptions, p.Key.SubscriptionID)
		}
	}
	return subscriptions, nil
}

func (s *sides) DesiredSummaries(_ context.Context, subscription, after string, limit int) (page []database.DesiredSummary, _ error) {
	for _, p := range s.promises {
		if p.Key.SubscriptionID == subscription && p.SortKey() > after && len(page) < limit {
			page = append(page, p)
		}
	}
	return page, nil
}

func (s *sides) Inventory(_ context.Context, token string, limit int) ([]*clusterservicev1.InventoryEntry, string, error) {
	first := 0
	if token != "" {
		first, _ = strconv.Atoi(token)
	}
	last := min(first+limit, len(s.entries))
	next := ""
	if last < len(s.entries) {
		next = strconv.Itoa(last)
	}
	return s.entries[first:last], next, nil
}

func (s *sides) sort() {
	slices.SortFunc(s.promises, func(a, b database.DesiredSummary) int { return strings.Compare(a.SortKey(), b.SortKey()) })
	slices.SortFunc(s.entries, func(a, b *clusterservicev1.InventoryEntry) int {
		return strings.Compare(strings.ToLower(a.ResourceId), strings.ToLower(b.ResourceId))
	})
}

func key(subscription, rest string) database.Key {
	return database.Key{SubscriptionID: subscription, ResourceID: "/subscriptions/" + subscription + "/resourceGroups/RG/providers/" + hub.ClusterResourceType + "/" + rest}
}

// TestCompare holds the merge against its meaning, over random sides, in pages of every size.
func TestCompare(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := &sides{}
		want := map[string]bool{}
		for c := range random.IntN(12) {
			subscription := fmt.Sprintf("s%d", random.IntN(4))
			name := fmt.Sprintf("Cluster%d", c)
			uid := fmt.Sprintf("uid-%d", c)
			// Whether the cluster is in the fleet only, which all that belongs to it then is.
			orphaned := false
			one := func(kind database.Kind, inventory clusterservicev1.InventoryKind, id, uid, clusterUID string) {
				p := database.DesiredSummary{Kind: kind, Key: key(subscription, id), UID: uid, ClusterUID: clusterUID, Generation: 3, ProvisioningState: hub.Succeeded,
					Fleet: database.FleetState{AcceptedGeneration: 3, Phase: clusterservice.PhaseReady}}
				e := &clusterservicev1.InventoryEntry{Kind: inventory, Uid: uid, ClusterUid: clusterUID, ResourceId: p.Key.ResourceID, Generation: 3}
				add := func(promised, held bool, difference reconciliation.DriftType) {
					if promised {
						s.promises = append(s.promises, p)
					}
					if held {
						s.entries = append(s.entries, e)
					}
					if difference != "" {
						want[string(difference)+" "+uid] = true
					}
				}
				what := random.IntN(10)
				if orphaned {
					what = 4
				}
				switch what {
				case 0:
					add(true, false, reconciliation.Missing)
				case 1:
					e.Generation = 2
					add(true, true, reconciliation.Older)
				case 2:
					e.Generation = 4
					add(true, true, reconciliation.Newer)
				case 3:
					p.Fleet.Phase = clusterservice.PhaseDeleting
					add(true, true, reconciliation.Undeleted)
				case 4:
					difference := reconciliation.Orphan
					if orphaned {
						difference = ""
					}
					orphaned = orphaned || kind == database.ClusterKind
					add(false, true, difference)
				case 5:
					p.ActiveOperationID = "operation"
					add(true, random.IntN(2) == 0, "")
				case 6:
					p.ProvisioningState = hub.Deleting
					add(true, random.IntN(2) == 0, "")
				case 7:
					p.Fleet = database.FleetState{}
					add(true, random.IntN(2) == 0, "")
				case 8:
					e.Uid = uid + "-old"
					if kind == database.ClusterKind {
						e.ClusterUid = e.Uid
					}
					want["Orphan "+uid+"-old"] = true
					add(true, true, reconciliation.Missing)
				default:
					add(true, true, "")
				}
			}
			one(database.ClusterKind, clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, name, uid, uid)
			for n := range random.IntN(4) {
				one(database.NodePoolKind, clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL, fmt.Sprintf("%s/nodePools/np%d", name, n), fmt.Sprintf("%s-np%d", uid, n), uid)
			}
		}
		// Cosmos DB's subscriptions are those of clusters; the rest needs one in each.
		for n := range 4 {
			p := database.DesiredSummary{Kind: database.ClusterKind, Key: key(fmt.Sprintf("s%d", n), "zz"), UID: fmt.Sprint("zz", n), ActiveOperationID: "operation"}
			s.promises = append(s.promises, p)
		}
		s.sort()
		for _, page := range []int{1, 2, 3, 100} {
			got := map[string]bool{}
			last := ""
			counts, err := reconciliation.Compare(t.Context(), s, s, reconciliation.Options{PageSize: page}, func(f reconciliation.Drift) error {
				got[string(f.Type)+" "+f.UID] = true
				if id := strings.ToLower(f.Key.ResourceID); id < last {
					t.Errorf("seed %d: %s comes after %s", seed, id, last)
				} else {
					last = id
				}
				return nil
			})
			if err != nil || counts.Desired != len(s.promises) || counts.Fleet != len(s.entries) {
				t.Fatalf("seed %d: %+v of %d and %d, %v", seed, counts, len(s.promises), len(s.entries), err)
			}
			for f := range want {
				if !got[f] {
					t.Errorf("seed %d, pages of %d: %s was not found", seed, page, f)
				}
			}
			for f := range got {
				if !want[f] {
					t.Errorf("seed %d, pages of %d: %s was found", seed, page, f)
				}
			}
		}
	}
}

func TestALoweredRelease(t *testing.T) {
	for held, want := range map[string]int{"4.20.8": 1, "4.20.16": 0, "4.21.0": 0, "": 0, "of another release": 0} {
		s := &sides{
			promises: []database.DesiredSummary{{Kind: database.ClusterKind, Key: key("s", "c"), UID: "u", Generation: 1, ProvisioningState: hub.Succeeded,
				Fleet: database.FleetState{AcceptedGeneration: 1, Recovery: &database.FleetRecovery{ReleaseVersion: "4.20.16"}}}},
			entries: []*clusterservicev1.InventoryEntry{{Kind: clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, Uid: "u", ClusterUid: "u",
				ResourceId: key("s", "c").ResourceID, Generation: 1, ReleaseVersion: held}},
		}
		found := 0
		if _, err := reconciliation.Compare(t.Context(), s, s, reconciliation.Options{}, func(f reconciliation.Drift) error {
			if f.Type != reconciliation.Older {
				t.Errorf("%q is %s", held, f.Type)
			}
			found++
			return nil
		}); err != nil || found != want {
			t.Errorf("%q: %d differences, %v, want %d", held, found, err, want)
		}
	}
}

// endless are sides of that many clusters, made as they are read: what is in memory is what is held of them.
type endless struct{ clusters int }

func (endless) SubscriptionsWithClusters(context.Context) ([]string, error) {
	return []string{"s"}, nil
}

func (e endless) DesiredSummaries(_ context.Context, _, after string, limit int) (page []database.DesiredSummary, _ error) {
	first := 0
	if after != "" {
		first, _ = strconv.Atoi(after[len(after)-7:])
		first++
	}
	for n := first; n < min(first+limit, e.clusters); n++ {
		page = append(page, database.DesiredSummary{Kind: database.ClusterKind, Key: key("s", fmt.Sprintf("c%07d", n)), UID: fmt.Sprint(n), Generation: 1, ProvisioningState: hub.Succeeded,
			Fleet: database.FleetState{AcceptedGeneration: 1, Recovery: &database.FleetRecovery{SigningKey: make([]byte, 1700)}}})
	}
	return page, nil
}

func (e endless) Inventory(_ context.Context, token string, limit int) (page []*clusterservicev1.InventoryEntry, next string, _ error) {
	first := 0
	if token != "" {
		first, _ = strconv.Atoi(token)
	}
	for n := first; n < min(first+limit, e.clusters); n++ {
		page = append(page, &clusterservicev1.InventoryEntry{Kind: clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, Uid: fmt.Sprint(n), ClusterUid: fmt.Sprint(n),
			ResourceId: key("s", fmt.Sprintf("c%07d", n)).ResourceID, Generation: int64(n % 2)})
	}
	if first+limit < e.clusters {
		next = strconv.Itoa(first + limit)
	}
	return page, next, nil
}

// TestCompareHoldsPages compares a region of 50,000 clusters, of which half are older, and looks at what is held of it.
func TestCompareHoldsPages(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, found := heap(), uint64(0), 0
	counts, err := reconciliation.Compare(t.Context(), endless{50_000}, endless{50_000}, reconciliation.Options{}, func(reconciliation.Drift) error {
		if found++; found%5000 == 0 {
			most = max(most, heap())
		}
		return nil
	})
	if err != nil || found != 25_000 || counts.Fleet != 50_000 || counts.Desired != 50_000 {
		t.Fatalf("%d differences of %+v, %v", found, counts, err)
	}
	// The promises alone take 85 MB in all; a page of them takes 1.
	if grown := int64(most) - int64(before); grown > 16<<20 {
		t.Errorf("comparing holds %d MiB", grown>>20)
	}
}
