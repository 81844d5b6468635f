package reconciliation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// sides are the resources of both sides, in order.
type sides struct {
	summaries []database.DesiredSummary
	entries   []*clusterservicev1.InventoryEntry
}

func (s *sides) SubscriptionsWithClusters(context.Context) ([]string, error) {
	var subscriptions []string
	for _, p := range s.summaries {
		if p.Kind == database.ClusterKind && !slices.Contains(subscriptions, p.Key.SubscriptionID) {
			subscriptions = append(subscriptions, p.Key.SubscriptionID)
		}
	}
	return subscriptions, nil
}

func (s *sides) DesiredSummaries(_ context.Context, subscription, after string, limit int) (page []database.DesiredSummary, _ error) {
	for _, p := range s.summaries {
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
	slices.SortFunc(s.summaries, func(a, b database.DesiredSummary) int { return strings.Compare(a.SortKey(), b.SortKey()) })
	slices.SortFunc(s.entries, func(a, b *clusterservicev1.InventoryEntry) int {
		return strings.Compare(strings.ToLower(a.ResourceId), strings.ToLower(b.ResourceId))
	})
}

func key(subscription, rest string) database.Key {
	return database.Key{SubscriptionID: subscription, ResourceID: "/subscriptions/" + subscription + "/resourceGroups/RG/providers/" + hub.ClusterResourceType + "/" + rest}
}

// TestCompare compares the result of the merge with the expected drift, for random sides and several page sizes.
func TestCompare(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := &sides{}
		want := map[string]bool{}
		for c := range random.IntN(12) {
			subscription := fmt.Sprintf("s%d", random.IntN(4))
			name := fmt.Sprintf("Cluster%d", c)
			uid := fmt.Sprintf("uid-%d", c)
			// orphaned is set if only the fleet has the cluster; then only the fleet has its children.
			orphaned := false
			one := func(kind database.Kind, inventory clusterservicev1.InventoryKind, id, uid, clusterUID string) {
				p := database.DesiredSummary{Kind: kind, Key: key(subscription, id), UID: uid, ClusterUID: clusterUID, Generation: 3, ProvisioningState: hub.Succeeded,
					Fleet: database.FleetState{AcceptedGeneration: 3, Phase: clusterservice.PhaseReady}}
				e := &clusterservicev1.InventoryEntry{Kind: inventory, Uid: uid, ClusterUid: clusterUID, ResourceId: p.Key.ResourceID, Generation: 3}
				add := func(desired, inFleet bool, drift reconciliation.DriftType) {
					if desired {
						s.summaries = append(s.summaries, p)
					}
					if inFleet {
						s.entries = append(s.entries, e)
					}
					if drift != "" {
						want[string(drift)+" "+uid] = true
					}
				}
				change := random.IntN(10)
				if orphaned {
					change = 4
				}
				switch change {
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
					drift := reconciliation.Orphan
					if orphaned {
						drift = ""
					}
					orphaned = orphaned || kind == database.ClusterKind
					add(false, true, drift)
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
		// Compare reads only subscriptions that have a cluster, so each needs one.
		for n := range 4 {
			p := database.DesiredSummary{Kind: database.ClusterKind, Key: key(fmt.Sprintf("s%d", n), "zz"), UID: fmt.Sprint("zz", n), ActiveOperationID: "operation"}
			s.summaries = append(s.summaries, p)
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
			if err != nil || counts.Desired != len(s.summaries) || counts.Fleet != len(s.entries) {
				t.Fatalf("seed %d: %+v of %d and %d, %v", seed, counts, len(s.summaries), len(s.entries), err)
			}
			for f := range want {
				if !got[f] {
					t.Errorf("seed %d, pages of %d: missing %s", seed, page, f)
				}
			}
			for f := range got {
				if !want[f] {
					t.Errorf("seed %d, pages of %d: unexpected %s", seed, page, f)
				}
			}
		}
	}
}

func TestCompareReportsLoweredRelease(t *testing.T) {
	for version, want := range map[string]int{"4.20.8": 1, "4.20.16": 0, "4.21.0": 0, "": 0, "of another release": 0} {
		s := &sides{
			summaries: []database.DesiredSummary{{Kind: database.ClusterKind, Key: key("s", "c"), UID: "u", Generation: 1, ProvisioningState: hub.Succeeded,
				Fleet: database.FleetState{AcceptedGeneration: 1, Recovery: &database.FleetRecovery{ReleaseVersion: "4.20.16"}}}},
			entries: []*clusterservicev1.InventoryEntry{{Kind: clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, Uid: "u", ClusterUid: "u",
				ResourceId: key("s", "c").ResourceID, Generation: 1, ReleaseVersion: version}},
		}
		found := 0
		if _, err := reconciliation.Compare(t.Context(), s, s, reconciliation.Options{}, func(f reconciliation.Drift) error {
			if f.Type != reconciliation.Older {
				t.Errorf("%q is %s", version, f.Type)
			}
			found++
			return nil
		}); err != nil || found != want {
			t.Errorf("%q: %d drifts, %v, want %d", version, found, err, want)
		}
	}
}

// TestCompareRejectsUnknownKinds compares an orphan of every kind of the inventory, and of one that is not defined.
func TestCompareRejectsUnknownKinds(t *testing.T) {
	supported := map[clusterservicev1.InventoryKind]database.Kind{
		clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER:       database.ClusterKind,
		clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL:     database.NodePoolKind,
		clusterservicev1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH: database.ExternalAuthKind,
	}
	kinds := []clusterservicev1.InventoryKind{99}
	for values, i := clusterservicev1.InventoryKind(0).Descriptor().Values(), 0; i < values.Len(); i++ {
		kinds = append(kinds, clusterservicev1.InventoryKind(values.Get(i).Number()))
	}
	for _, kind := range kinds {
		s := &sides{entries: []*clusterservicev1.InventoryEntry{{Kind: kind, Uid: "u", ClusterUid: "c", ResourceId: key("s", "c").ResourceID, Generation: 1}}}
		var drifts []reconciliation.Drift
		_, err := reconciliation.Compare(t.Context(), s, s, reconciliation.Options{}, func(d reconciliation.Drift) error {
			drifts = append(drifts, d)
			return nil
		})
		if want, ok := supported[kind]; ok {
			if err != nil || len(drifts) != 1 || drifts[0].Kind != want {
				t.Errorf("%s: %v, %v, want one drift of kind %s", kind, drifts, err, want)
			}
			continue
		}
		want := key("s", "c").ResourceID + ": kind: unsupported value " + kind.String() +
			": supported values are INVENTORY_KIND_CLUSTER, INVENTORY_KIND_NODE_POOL, INVENTORY_KIND_EXTERNAL_AUTH"
		if err == nil || !strings.Contains(err.Error(), want) || len(drifts) > 0 {
			t.Errorf("%s: %v, %v, want no drift and an error with %q", kind, drifts, err, want)
		}
	}
}

// generated has both sides of a region with many clusters, which it creates when they are read.
type generated struct{ clusters int }

func (generated) SubscriptionsWithClusters(context.Context) ([]string, error) {
	return []string{"s"}, nil
}

func (e generated) DesiredSummaries(_ context.Context, _, after string, limit int) (page []database.DesiredSummary, _ error) {
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

func (e generated) Inventory(_ context.Context, token string, limit int) (page []*clusterservicev1.InventoryEntry, next string, _ error) {
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

// alone is an environment variable that makes the process of a test measure its memory.
const alone = "RECONCILIATION_TEST_ALONE"

// TestCompareKeepsOnlyPagesInMemory compares a region of 50,000 clusters, of which half are older, in a process of its own, whose heap holds nothing of
// other tests.
func TestCompareKeepsOnlyPagesInMemory(t *testing.T) {
	if os.Getenv(alone) == "" {
		program := must.Get(os.Executable())(t)
		command := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), alone+"=1")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, found := heap(), uint64(0), 0
	counts, err := reconciliation.Compare(t.Context(), generated{50_000}, generated{50_000}, reconciliation.Options{}, func(reconciliation.Drift) error {
		if found++; found%5000 == 0 {
			most = max(most, heap())
		}
		return nil
	})
	if err != nil || found != 25_000 || counts.Fleet != 50_000 || counts.Desired != 50_000 {
		t.Fatalf("%d drifts of %+v, %v", found, counts, err)
	}
	// All summaries take 85 MB; a page takes 1 MB.
	if grown := int64(most) - int64(before); grown > 16<<20 {
		t.Errorf("the comparison needs %d MiB", grown>>20)
	}
}
