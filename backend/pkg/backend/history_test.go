package backend_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// backup is what a fleet knew at a moment.
type backup struct {
	revision int64
	log      []string
	clusters map[string]*clusterservicev1.Cluster
	pools    map[string]*clusterservicev1.NodePool
	auths    map[string]*clusterservicev1.ExternalAuth
	creds    map[string]*clusterservicev1.BreakGlassCredential
}

func clones[M proto.Message](of map[string]M) map[string]M {
	cloned := map[string]M{}
	for uid, m := range of {
		cloned[uid] = proto.CloneOf(m)
	}
	return cloned
}

func (f *fleet) backup() backup {
	f.mu.Lock()
	defer f.mu.Unlock()
	return backup{f.revision, slices.Clone(f.log), clones(f.clusters), clones(f.pools), clones(f.auths), clones(f.creds)}
}

// restore has the fleet lose what happened since. leap begins the revisions anew beyond those that were given, as Cluster
// Service does when it learns of it; without, they are given again. watches end.
func (f *fleet) restore(b backup, leap bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history++
	lost := f.revision
	f.revision, f.log = b.revision, b.log
	f.clusters, f.pools, f.auths, f.creds = b.clusters, b.pools, b.auths, b.creds
	f.moving = map[string]bool{}
	if leap {
		for f.revision < lost+10 {
			f.next("")
		}
		f.compacted = f.revision
		for uid, c := range f.clusters {
			c.Revision = f.next(uid)
		}
		for uid, p := range f.pools {
			p.Revision = f.next(uid)
		}
		for uid, e := range f.auths {
			e.Revision = f.next(uid)
		}
		for uid, c := range f.creds {
			c.Revision = f.next(uid)
		}
	}
	for _, uid := range slices.Concat(slices.Collect(maps.Keys(f.clusters)), slices.Collect(maps.Keys(f.pools)), slices.Collect(maps.Keys(f.creds))) {
		f.moving[uid] = true
	}
	f.changed.Broadcast()
}

// TestClusterServiceIsRestored has Cluster Service lose what it had accepted: a cluster and a node pool that are being made, a
// change, a deletion and a credential. The backend begins with a full list, tells it again, and every operation ends. So it
// does with reports whose revisions are lower than those it had seen, and when it starts only afterwards.
func TestClusterServiceIsRestored(t *testing.T) {
	for name, test := range map[string]struct {
		leap, down bool
	}{
		"the revisions leap":                  {leap: true},
		"the revisions go back":               {},
		"the revisions leap, no backend runs": {leap: true, down: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			stop := r.start("backend-0")
			key := func(name string) database.Key { return clusterKey(subscription, name) }
			for _, name := range []string{"changed", "deleted", "parent"} {
				r.ends(r.createCluster(key(name)), hub.Succeeded)
			}
			b := r.fleet.backup()
			// Much happens that is lost, so that it takes the revisions long to come there again.
			for range 20 {
				r.ends(r.change(key("parent"), database.UpdateRequest), hub.Succeeded)
			}
			r.freeze(true)
			operations := []database.Key{
				r.createCluster(key("created")), r.createPool(key("parent"), "np1"),
				r.change(key("changed"), database.UpdateRequest), r.change(key("deleted"), database.DeleteRequest),
			}
			credential, _ := r.requestCredential(key("parent"))
			r.eventually("all of it", func() string {
				r.fleet.mu.Lock()
				defer r.fleet.mu.Unlock()
				if len(r.fleet.clusters) != 4 || len(r.fleet.pools) != 1 || len(r.fleet.deletions) != 1 || len(r.fleet.effects) < 6 {
					return "is not in Cluster Service"
				}
				return ""
			})
			r.eventually("what was accepted", func() string {
				item, err := r.db.Clusters().Get(t.Context(), key("deleted"))
				if err != nil || item.Value.Fleet.Phase != "Deleting" {
					return "is not noted"
				}
				return ""
			})
			if test.down {
				stop()
			}
			r.fleet.restore(b, test.leap)
			r.freeze(false)
			if test.down {
				r.start("backend-0")
			}
			for _, operation := range append(operations, credential) {
				r.ends(operation, hub.Succeeded)
			}
			stop()
		})
	}
}
