package etcdusers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// as returns a client of etcd with a certificate for a user.
func as(t *testing.T, cluster *kubeapitest.Cluster, user string) *clientv3.Client {
	t.Helper()
	authority := must.Get(kubeapi.OpenEtcdAuthority(cluster.EtcdAuthority))(t)
	files := must.Get(authority.Issue(t.TempDir(), user))(t)
	config := must.Get(files.Config())(t)
	client := must.Get(clientv3.New(clientv3.Config{Endpoints: []string{cluster.Etcd}, TLS: config, Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestUsers(t *testing.T) {
	cluster := kubeapitest.Start(t)
	users := cluster.EtcdUsers(t)
	t.Run("own keys only", func(t *testing.T) { testOwnKeysOnly(t, cluster, users) })
	t.Run("maintenance", func(t *testing.T) { testMaintenance(t, cluster, users) })
	t.Run("compaction", func(t *testing.T) { testCompaction(t, cluster, users) })
	t.Run("compaction by another user", func(t *testing.T) { testForeignCompaction(t, cluster, users) })
	t.Run("alarms", func(t *testing.T) { testAlarms(t, cluster, users) })
	t.Run("counted values", func(t *testing.T) { testCountedValues(t, cluster, users) })
	t.Run("removal", func(t *testing.T) { testRemoval(t, cluster, users) })
	t.Run("changed permissions", func(t *testing.T) { testChangedPermissions(t, cluster, users) })
	t.Run("changes disturb nobody", func(t *testing.T) { testChangesDisturbNobody(t, cluster, users) })
	t.Run("unchanged users", func(t *testing.T) { testUnchangedUsers(t, cluster, users) })
}

func ensure(t *testing.T, users *etcdusers.Client, wanted ...etcdusers.User) {
	t.Helper()
	for _, user := range wanted {
		must.Do(t, users.Ensure(t.Context(), user))
	}
}

func testOwnKeysOnly(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/a"}, etcdusers.User{Prefix: "/ab", Compacts: true})
	// The errors of requests for a key with the certificates of the users, and of one who does not exist.
	const compaction = "compact_rev_key"
	cases := []struct {
		user, key   string
		read, write error
	}{
		{"/a", "/a/x", nil, nil},
		{"/a", "/ab/x", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		{"/a", "/a", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		{"/a", "/test/registry/secrets/default/x", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		{"/a", compaction, nil, rpctypes.ErrPermissionDenied},
		{"/ab", "/ab/x", nil, nil},
		{"/ab", "/a/x", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		{"/ab", compaction, nil, nil},
		{"/unknown", "/a/x", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		{"etcd", "/a/x", rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
	}
	for _, c := range cases {
		client := as(t, cluster, c.user)
		if _, err := client.Get(t.Context(), c.key); !errors.Is(err, c.read) {
			t.Errorf("%s reads %s: %v, want %v", c.user, c.key, err, c.read)
		}
		if _, err := client.Put(t.Context(), c.key, "0"); !errors.Is(err, c.write) {
			t.Errorf("%s writes %s: %v, want %v", c.user, c.key, err, c.write)
		}
		if _, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s reads all keys: %v", c.user, err)
		}
		if _, err := client.UserAdd(t.Context(), "/new", ""); !refused(err) {
			t.Errorf("%s creates a user: %v", c.user, err)
		}
		if _, err := client.UserGrantRole(t.Context(), c.user, etcdusers.Root); !refused(err) {
			t.Errorf("%s becomes root: %v", c.user, err)
		}
		snapshot, err := client.Snapshot(t.Context())
		if err == nil {
			_, err = snapshot.Read(make([]byte, 1))
			_ = snapshot.Close()
		}
		if !refused(err) {
			t.Errorf("%s copies etcd: %v", c.user, err)
		}
	}
}

// testMaintenance sends the requests about the server, its members and leases as a user, and those that read what another user has without naming its keys.
func testMaintenance(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/attacker"}, etcdusers.User{Prefix: "/victim"})
	ctx, attacker, victim := t.Context(), as(t, cluster, "/attacker"), as(t, cluster, "/victim")
	lease := must.Get(victim.Grant(ctx, 3600))(t)
	must.Get(victim.Put(ctx, "/victim/x", "0", clientv3.WithLease(lease.ID)))(t)
	members := must.Get(attacker.MemberList(ctx))(t)
	member, peers := members.Members[0].ID, []string{"https://127.0.0.1:1"}
	server := etcdserverpb.NewMaintenanceClient(attacker.ActiveConnection())
	only := func(_ any, err error) error { return err }
	for request, err := range map[string]error{
		"the status":                      only(server.Status(ctx, &etcdserverpb.StatusRequest{})),
		"a defragmentation":               only(server.Defragment(ctx, &etcdserverpb.DefragmentRequest{})),
		"another leader":                  only(server.MoveLeader(ctx, &etcdserverpb.MoveLeaderRequest{TargetID: member})),
		"a hash of all keys":              only(server.HashKV(ctx, &etcdserverpb.HashKVRequest{})),
		"a hash of the database":          only(server.Hash(ctx, &etcdserverpb.HashRequest{})),
		"a downgrade":                     only(server.Downgrade(ctx, &etcdserverpb.DowngradeRequest{Action: etcdserverpb.DowngradeRequest_ENABLE, Version: "3.5.0"})),
		"a new member":                    only(attacker.MemberAdd(ctx, peers)),
		"another address of the member":   only(attacker.MemberUpdate(ctx, member, peers)),
		"no member":                       only(attacker.MemberRemove(ctx, member)),
		"no users":                        only(attacker.AuthDisable(ctx)),
		"the list of users":               only(attacker.UserList(ctx)),
		"another user":                    only(attacker.UserGet(ctx, "/victim")),
		"the keys of another's lease":     only(attacker.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())),
		"the end of another's lease":      only(attacker.Revoke(ctx, lease.ID)),
		"an own key in another's lease":   only(attacker.Put(ctx, "/attacker/x", "0", clientv3.WithLease(lease.ID))),
		"a comparison with another's key": only(attacker.Txn(ctx).If(clientv3.Compare(clientv3.Value("/victim/x"), "=", "0")).Commit()),
		"the removal of all keys":         only(attacker.Delete(ctx, "", clientv3.WithPrefix())),
	} {
		if !refused(err) && status.Code(err) != codes.PermissionDenied {
			t.Errorf("a user gets %s: %v", request, err)
		}
	}
	if watched := <-attacker.Watch(ctx, "/victim/", clientv3.WithPrefix()); !watched.Canceled {
		t.Errorf("a user watches the keys of another one: %+v", watched)
	}
	if response, err := victim.Get(ctx, "/victim/x"); err != nil || response.Count != 1 {
		t.Errorf("the key of another user: %v, %v", response, err)
	}
}

// testCompaction compacts etcd as an API server does: it writes the revision to the common key and compacts.
func testCompaction(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/compacts", Compacts: true})
	client := as(t, cluster, "/compacts")
	response := must.Get(client.Put(t.Context(), "compact_rev_key", "0"))(t)
	if _, err := client.Compact(t.Context(), response.Header.Revision); err != nil {
		t.Error(err)
	}
}

// testForeignCompaction compacts etcd as a user that is not the one for it, which etcd permits. No value is lost, and a watch that follows
// the changes continues. A watch from an earlier revision ends, so that its API server lists the objects again.
func testForeignCompaction(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/compacts-unasked"}, etcdusers.User{Prefix: "/follows"})
	ctx, attacker, victim := t.Context(), as(t, cluster, "/compacts-unasked"), as(t, cluster, "/follows")
	follows := victim.Watch(ctx, "/follows/x")
	first := must.Get(victim.Put(ctx, "/follows/x", "1"))(t)
	if got := <-follows; len(got.Events) != 1 || string(got.Events[0].Kv.Value) != "1" {
		t.Fatalf("the watch before the compaction gets %+v", got)
	}
	second := must.Get(victim.Put(ctx, "/follows/y", "1"))(t)
	must.Get(attacker.Compact(ctx, second.Header.Revision))(t)
	must.Get(victim.Put(ctx, "/follows/x", "2"))(t)
	if got := <-follows; len(got.Events) != 1 || string(got.Events[0].Kv.Value) != "2" {
		t.Errorf("the watch after the compaction gets %+v", got)
	}
	if values, err := users.Read(ctx, "/follows"); err != nil || len(values) != 2 {
		t.Errorf("values after the compaction: %v, %v", values, err)
	}
	if got := <-victim.Watch(ctx, "/follows/x", clientv3.WithRev(first.Header.Revision)); !errors.Is(got.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from before the compaction gets %+v, %v", got, got.Err())
	}
}

// testAlarms raises each of etcd's alarms as a user, which etcd permits. All users can only read until one of them ends the alarm. Nothing is
// lost.
func testAlarms(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/raises"}, etcdusers.User{Prefix: "/suffers"})
	ctx, attacker, victim := t.Context(), as(t, cluster, "/raises"), as(t, cluster, "/suffers")
	must.Get(victim.Put(ctx, "/suffers/x", "0"))(t)
	member := must.Get(attacker.MemberList(ctx))(t).Members[0].ID
	server := etcdserverpb.NewMaintenanceClient(attacker.ActiveConnection())
	for alarm, want := range map[etcdserverpb.AlarmType]error{etcdserverpb.AlarmType_NOSPACE: rpctypes.ErrNoSpace, etcdserverpb.AlarmType_CORRUPT: rpctypes.ErrCorrupt} {
		raise := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: alarm}
		must.Get(server.Alarm(ctx, raise))(t)
		if _, err := victim.Put(ctx, "/suffers/x", "1"); !errors.Is(err, want) {
			t.Errorf("a write during the alarm %s: %v, want %v", alarm, err, want)
		}
		if got, err := victim.Get(ctx, "/suffers/x"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "0" {
			t.Errorf("the value during the alarm %s: %v, %v", alarm, got, err)
		}
		must.Get(victim.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: member, Alarm: alarm}))(t)
		must.Get(victim.Put(ctx, "/suffers/x", "0"))(t)
	}
}

// testCountedValues counts more values than a page has.
func testCountedValues(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/counted"}, etcdusers.User{Prefix: "/counted-2"})
	client, other := as(t, cluster, "/counted"), as(t, cluster, "/counted-2")
	for i := range 250 {
		must.Get(client.Put(t.Context(), fmt.Sprintf("/counted/%d", i), []string{"key1:x", "key2:x", "key10:x", "", "x key1:"}[i%5]))(t)
	}
	must.Get(other.Put(t.Context(), "/counted-2/x", "key1:x"))(t)
	for beginning, want := range map[string]int{"key1:": 50, "key2:": 50, "key3:": 0} {
		if n, err := users.CountValues(t.Context(), "/counted", beginning); err != nil || n != want {
			t.Errorf("%d values begin with %s, want %d; %v", n, beginning, want, err)
		}
	}
	if n, err := users.CountValues(t.Context(), "/none", "key1:"); err != nil || n != 0 {
		t.Errorf("%d values without keys, %v", n, err)
	}
}

// refused reports whether etcd refused a request because the user has no right or does not exist.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserNotFound)
}

func testRemoval(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/removed"}, etcdusers.User{Prefix: "/removed-2"})
	removed, other := as(t, cluster, "/removed"), as(t, cluster, "/removed-2")
	for client, key := range map[*clientv3.Client]string{removed: "/removed/x", other: "/removed-2/x"} {
		must.Get(client.Put(t.Context(), key, "0"))(t)
	}
	for range 2 { // it is idempotent
		must.Do(t, users.Remove(t.Context(), "/removed"))
	}
	if values, err := users.Read(t.Context(), "/removed"); err != nil || len(values) != 0 {
		t.Errorf("keys of the removed user: %v, %v", values, err)
	}
	if values, err := users.Read(t.Context(), "/removed-2"); err != nil || len(values) != 1 {
		t.Errorf("keys of another user: %v, %v", values, err)
	}
	if _, err := removed.Put(t.Context(), "/removed/x", "0"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("the removed user writes: %v", err)
	}
	if names, err := users.Users(t.Context()); err != nil || slices.Contains(names, "/removed") || !slices.Contains(names, "/removed-2") {
		t.Errorf("users: %v, %v", names, err)
	}
	ensure(t, users, etcdusers.User{Prefix: "/removed"})
	if _, err := removed.Put(t.Context(), "/removed/x", "0"); err != nil {
		t.Errorf("the user that was created again writes: %v", err)
	}
}

func testChangedPermissions(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	client := as(t, cluster, "/changed")
	for _, compacts := range []bool{true, false, true} {
		ensure(t, users, etcdusers.User{Prefix: "/changed", Compacts: compacts})
		if _, err := client.Put(t.Context(), "compact_rev_key", "0"); (err == nil) != compacts {
			t.Errorf("compacts is %v: %v", compacts, err)
		}
	}
}

// testChangesDisturbNobody writes while users come and go. etcd rejects requests that it has begun before a change, and its client, which
// API servers use too, repeats them.
func testChangesDisturbNobody(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	ensure(t, users, etcdusers.User{Prefix: "/busy"})
	busy := as(t, cluster, "/busy")
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			key := fmt.Sprintf("/busy/%d", i)
			for n := int64(0); ctx.Err() == nil; n++ {
				// The transaction of an API server's update.
				response, err := busy.Txn(t.Context()).If(clientv3.Compare(clientv3.Version(key), "=", n)).
					Then(clientv3.OpPut(key, "0")).Else(clientv3.OpGet(key)).Commit()
				if err != nil || !response.Succeeded {
					t.Errorf("update %d of %s: %v, %v", n, key, response, err)
					return
				}
			}
		})
	}
	for i := range 40 {
		user := etcdusers.User{Prefix: fmt.Sprintf("/coming-%d", i)}
		ensure(t, users, user)
		if err := users.Remove(t.Context(), user.Prefix); err != nil {
			t.Error(err)
		}
	}
	cancel()
	writers.Wait()
}

// testUnchangedUsers checks that Ensure and Enable do not change the revision of users.
func testUnchangedUsers(t *testing.T, cluster *kubeapitest.Cluster, users *etcdusers.Client) {
	user := etcdusers.User{Prefix: "/unchanged"}
	ensure(t, users, user)
	root := as(t, cluster, etcdusers.Root)
	before := must.Get(root.AuthStatus(t.Context()))(t)
	ensure(t, users, user)
	must.Do(t, users.Enable(t.Context()))
	after := must.Get(root.AuthStatus(t.Context()))(t)
	if before.AuthRevision != after.AuthRevision {
		t.Errorf("revision %d became %d", before.AuthRevision, after.AuthRevision)
	}
}
