package app_test

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// backup is the state of a fleet at a time.
type backup struct {
	clusters map[string]*clusterservicev1.Cluster
	pools    map[string]*clusterservicev1.NodePool
	auths    map[string]*clusterservicev1.ExternalAuth
	creds    map[string]*clusterservicev1.BreakGlassCredential
	revokes  map[string]*clusterservicev1.BreakGlassRevocation
	effects  map[string]int
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
	return backup{clones(f.clusters), clones(f.pools), clones(f.auths), clones(f.creds), clones(f.revokes), maps.Clone(f.effects)}
}

// restore resets the fleet to a backup. Like Cluster Service after its database was restored, it ends the watches and
// starts with revisions beyond all earlier ones, with every resource changed.
func (f *fleet) restore(b backup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history++
	f.clusters, f.pools, f.auths, f.creds, f.revokes, f.effects = b.clusters, b.pools, b.auths, b.creds, b.revokes, b.effects
	f.moving = map[string]bool{}
	f.next("")
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
	for uid, v := range f.revokes {
		v.Revision = f.next(uid)
	}
}

// startOperations starts operations of every kind in a frozen fleet, and waits until the fleet has accepted them and
// this is stored.
func (r *region) startOperations() (operations []database.Key) {
	r.t.Helper()
	key := func(name string) database.Key { return clusterKey(subscription, name) }
	operations = []database.Key{
		r.createCluster(key("created")), r.createPool(key("parent"), "np1"), r.createAuth(key("parent"), "entra"),
		r.change(key("changed"), database.UpdateRequest), r.change(key("deleted"), database.DeleteRequest),
	}
	credential, _ := r.requestCredential(key("parent"))
	operations = append(operations, credential, r.revoke(key("revoked")))
	accepted := func(name string, holds func(*database.ClusterDocument) bool) {
		r.eventually("the accepted request of "+name, func() string {
			item, err := r.db.Clusters().Get(r.t.Context(), key(name))
			if err != nil || !holds(&item.Value) {
				return "it is not stored"
			}
			return ""
		})
	}
	accepted("created", func(d *database.ClusterDocument) bool { return d.Fleet.AcceptedGeneration == 1 })
	accepted("changed", func(d *database.ClusterDocument) bool { return d.Fleet.AcceptedGeneration == 2 })
	accepted("deleted", func(d *database.ClusterDocument) bool { return d.Fleet.Phase == clusterservice.PhaseDeleting })
	r.eventually("the other requests", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		if len(r.fleet.pools) != 1 || len(r.fleet.auths) != 1 || len(r.fleet.creds) != 1 || len(r.fleet.revokes) != 1 {
			return "Cluster Service does not have all of them"
		}
		return ""
	})
	return operations
}

// prepare creates the clusters for startOperations, and returns a backup of the fleet.
func (r *region) prepare() backup {
	r.t.Helper()
	for _, name := range []string{"changed", "deleted", "parent", "revoked"} {
		r.ends(r.createCluster(clusterKey(subscription, name)), hub.Succeeded)
	}
	return r.fleet.backup()
}

// TestClusterServiceIsRestored makes Cluster Service lose accepted requests: the creation of a cluster, a node pool, an
// external authentication and a credential, an update, a deletion and a revocation. The backend lists the fleet and
// sends the active requests again, so that every operation ends. This also holds if no backend ran during the restore.
func TestClusterServiceIsRestored(t *testing.T) {
	for name, down := range map[string]bool{"while a backend runs": false, "while none runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.fleet.secrets = true
			stop := r.start("backend-0")
			before := r.prepare()
			r.freeze(true)
			operations := r.startOperations()
			if down {
				stop()
			}
			r.fleet.restore(before)
			r.freeze(false)
			if down {
				r.start("backend-0")
			}
			for _, operation := range operations {
				r.ends(operation, hub.Succeeded)
			}
		})
	}
}

// TestSweepRestoration does the same while the backend crashes before and after each external write.
func TestSweepRestoration(t *testing.T) {
	sweep(t, nil, func(r *region) {
		before := r.prepare()
		r.freeze(true)
		operations := r.startOperations()
		r.fleet.restore(before)
		r.freeze(false)
		for _, operation := range operations {
			r.ends(operation, hub.Succeeded)
		}
	})
}
