package app_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// before returns the catalogue without some releases.
func before(t *testing.T, missing ...string) *release.Catalog {
	t.Helper()
	text := "repository: quay.io/openshift-release-dev/ocp-release\nreleases:\n"
	full := must.Get(release.Default())(t)
	for _, r := range full.Releases() {
		if !strings.Contains(strings.Join(missing, " "), r.Version.String()) {
			text += fmt.Sprintf("- {version: %s, digest: '%s', channels: [%s]}\n", r.Version, r.Digest, strings.Join(r.Channels, ", "))
		}
	}
	return must.Get(release.Parse([]byte(text)))(t)
}

// TestPolicyUpgradesFleet checks that a policy upgrades every cluster of a region to a new patch release with two
// replicas, never more at once than the policy allows, and without omissions. `make bench` uses 500 clusters in a whole region.
func TestPolicyUpgradesFleet(t *testing.T) {
	t.Parallel()
	clusters := nightly.Choose(30, 100)
	limit := clusters / 10
	r := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: int32(clusters)}, config.Shard{Name: "mgmt-2", Capacity: int32(clusters)})
	r.play()
	full := r.releases
	r.releases = before(t, "4.21.4", "4.21.6")
	old := r.start(nil)
	ctx := t.Context()
	uids := map[string]bool{}
	for i := range clusters {
		request := applyRequest(fmt.Sprintf("c%d", i), 1)
		uids[request.Uid] = true
		must.Get(old.ApplyCluster(ctx, request))(t)
	}
	await := func(i *instance, what string, done func(*csv1.WatchResponse) bool) {
		t.Helper()
		stream := must.Get(i.Watch(ctx, &csv1.WatchRequest{}))(t)
		for {
			response, err := stream.Recv()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if done(response) {
				return
			}
		}
	}
	ready := map[string]bool{}
	await(old, "installing", func(w *csv1.WatchResponse) bool {
		if c := w.GetCluster(); clusterReady(1)(c) && runs("4.21.1")(c) {
			ready[c.GetUid()] = true
		}
		return len(ready) == clusters
	})
	old.stop()

	r.releases = full
	r.hypershift.SlowUpgrades(4)
	r.hypershift.HoldUpgrades(true)
	first := r.start(nil)
	r.start(nil)
	begun := time.Now()
	policy := &csv1.ApplyUpgradePolicyRequest{Name: "patches", Actor: ada, Spec: &csv1.UpgradePolicySpec{MaxConcurrent: int32(limit), ChannelGroups: []string{"stable"}}}
	must.Get(first.ApplyUpgradePolicy(ctx, policy))(t)
	running, done := map[string]bool{}, map[string]bool{}
	await(first, "beginning", func(w *csv1.WatchResponse) bool {
		if u := w.GetUpgrade(); u.GetStatus().GetState() == controlPlane {
			running[u.GetUid()] = true
		}
		return len(running) == limit
	})
	held, err := first.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "patches"})
	if err != nil || held.GetStatus().GetRunning() != int32(limit) || held.GetStatus().GetRemaining() != int32(clusters-limit) {
		t.Errorf("policy while all upgrades are held: %v, %v", held.GetStatus(), err)
	}
	r.continueUpgrades()
	await(first, "upgrading", func(w *csv1.WatchResponse) bool {
		if u := w.GetUpgrade(); u.GetStatus().GetState() == completed {
			done[u.GetClusterUid()] = true
		}
		return len(done) == clusters
	})
	// The management clusters count the concurrent upgrades.
	if at := r.hypershift.MaxConcurrentUpgrades(); at > limit || at < limit/2 {
		t.Errorf("%d control planes were upgraded at once, at most %d are allowed", at, limit)
	}
	t.Logf("%d clusters after %v, at most %d at once", clusters, time.Since(begun), r.hypershift.MaxConcurrentUpgrades())
	for uid := range uids {
		if !done[uid] {
			t.Errorf("cluster %s was not upgraded", uid)
		}
	}
	status, err := first.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "patches"})
	if err != nil || status.GetStatus().GetUpToDate() != int32(clusters) || status.GetStatus().GetRemaining() != 0 || status.GetStatus().GetRunning() != 0 {
		t.Errorf("policy is %v, %v", status.GetStatus(), err)
	}
	r.nothingWasWrong(t)
}

// TestUpgradeStartsWhenAdmitted checks that an upgrade that waited for its admission is not recorded as if it had run beside
// one that ended during that wait: the records would show more upgrades at once than the policy allows.
func TestUpgradeStartsWhenAdmitted(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	full := r.releases
	r.releases = before(t, "4.21.4", "4.21.6")
	old := r.start(nil)
	for _, name := range []string{"one", "two"} {
		old.createReady(t, name)
	}
	old.stop()
	r.releases, r.upgradeInterval = full, 50*time.Millisecond
	r.hypershift.HoldUpgrades(true)
	service := r.start(nil)
	ctx := t.Context()
	allow := func(limit int32) {
		t.Helper()
		policy := &csv1.ApplyUpgradePolicyRequest{Name: "patches", Actor: ada, Spec: &csv1.UpgradePolicySpec{MaxConcurrent: limit, ChannelGroups: []string{"stable"}}}
		must.Get(service.ApplyUpgradePolicy(ctx, policy))(t)
	}
	allow(1)
	var first *csv1.Upgrade
	service.watchUntil(t, func(w *csv1.WatchResponse) bool {
		first = w.GetUpgrade()
		return first.GetStatus().GetState() == controlPlane
	}, func() string { return fmt.Sprint(first) })

	// This transaction has the lock of the admission, as that of another replica could. The second upgrade waits for it.
	direct := must.Get(pgx.Connect(ctx, r.url))(t)
	defer func() { _ = direct.Close(context.WithoutCancel(ctx)) }()
	must.Get(direct.Exec(ctx, "SELECT pg_advisory_lock($1, 2)", lockClassTasks))(t)
	allow(2)
	untilDone(t, func(ctx context.Context) error {
		var waiting int
		err := direct.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = $1 AND objid = 2 AND NOT granted", lockClassTasks).Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("no transaction waits for the admission")
		}
		return err
	})
	r.continueUpgrades()
	ended := func(of *csv1.Upgrade) bool { return of.GetStatus().GetState() == completed }
	service.watchUntil(t, func(w *csv1.WatchResponse) bool {
		if u := w.GetUpgrade(); u.GetUid() == first.GetUid() {
			first = u
		}
		return ended(first)
	}, func() string { return fmt.Sprint(first) })
	must.Get(direct.Exec(ctx, "SELECT pg_advisory_unlock($1, 2)", lockClassTasks))(t)
	var second *csv1.Upgrade
	service.watchUntil(t, func(w *csv1.WatchResponse) bool {
		if u := w.GetUpgrade(); u != nil && u.GetUid() != first.GetUid() {
			second = u
		}
		return ended(second)
	}, func() string { return fmt.Sprint(second) })
	if from, until := second.GetCreateTime().AsTime(), first.GetStatus().GetCompletionTime().AsTime(); from.Before(until) {
		t.Errorf("the second upgrade is recorded from %v, and was admitted after the first one ended at %v", from, until)
	}
}

// lockClassTasks is the class of the store's advisory locks for tasks.
const lockClassTasks = 0x68637074

// TestPolicies checks which clusters a policy excludes, and when it runs.
func TestPolicies(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	full := r.releases
	r.releases = before(t, "4.21.4", "4.21.6")
	old := r.start(nil)
	plain, _ := old.createReady(t, "plain")
	own, _ := old.createReady(t, "own")
	exact := old.installed(t, "exact", "4.21.1")
	old.stop()
	r.releases = full
	service := r.start(nil)
	ctx := t.Context()
	apply := func(name string, spec *csv1.UpgradePolicySpec) {
		t.Helper()
		must.Get(service.ApplyUpgradePolicy(ctx, &csv1.ApplyUpgradePolicyRequest{Name: name, Spec: spec, Actor: ada}))(t)
	}
	// A cluster with its own policy is excluded from the region's. A closed window starts nothing.
	closed := time.Now().UTC().Add(12 * time.Hour)
	apply("own", &csv1.UpgradePolicySpec{ClusterUid: own.Uid, Schedule: &csv1.UpgradeSchedule{Cron: fmt.Sprintf("%d %d * * *", closed.Minute(), closed.Hour()), CronMinutes: 15}})
	apply("others", &csv1.UpgradePolicySpec{MinorVersions: []string{"4.22"}})
	apply("region", &csv1.UpgradePolicySpec{MinorVersions: []string{"4.21"}})
	service.awaitCluster(t, plain.Uid, runs("4.21.4"))

	policy, err := service.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "own"})
	if err != nil || policy.GetStatus().GetOpen() || policy.GetStatus().GetRemaining() != 1 || policy.GetStatus().GetUntil() == nil {
		t.Errorf("policy with a closed window: %v, %v", policy, err)
	}
	untilDone(t, func(ctx context.Context) error {
		policy, err = service.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "region"})
		if err == nil && (policy.GetStatus().GetUpToDate() != 1 || policy.GetStatus().GetRunning() != 0) {
			err = fmt.Errorf("region's policy: %v", policy.GetStatus())
		}
		return err
	})
	if left := policy.GetStatus().GetLeftOut(); len(left) != 1 || left[0].GetClusterUid() != exact.Uid || !strings.Contains(left[0].GetReason(), "exactly 4.21.1") {
		t.Errorf("left out: %v", left)
	}
	// After the window opens, the policy upgrades its cluster. A pause stops it, and deleting it keeps the upgraded
	// clusters.
	apply("own", &csv1.UpgradePolicySpec{ClusterUid: own.Uid})
	service.awaitCluster(t, own.Uid, runs("4.21.4"))
	list, err := service.ListUpgradePolicies(ctx, &csv1.ListUpgradePoliciesRequest{})
	if err != nil || len(list.GetPolicies()) != 3 || list.GetPolicies()[0].GetActor().GetTicket() != "INC-7" {
		t.Errorf("policies: %v, %v", list, err)
	}
	for _, name := range []string{"own", "others", "region"} {
		if _, err := service.DeleteUpgradePolicy(ctx, &csv1.DeleteUpgradePolicyRequest{Name: name, Actor: ada}); err != nil {
			t.Error(err)
		}
	}
	if _, err := service.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "own"}); status.Code(err) != codes.NotFound {
		t.Errorf("deleted policy: %v", err)
	}
	for reason, request := range map[string]*csv1.ApplyUpgradePolicyRequest{
		"a name":          {Name: "A b", Actor: ada, Spec: &csv1.UpgradePolicySpec{}},
		"an actor":        {Name: "a", Spec: &csv1.UpgradePolicySpec{}},
		"a spec":          {Name: "a", Actor: ada},
		"a limit":         {Name: "a", Actor: ada, Spec: &csv1.UpgradePolicySpec{MaxConcurrent: 1001}},
		"a schedule":      {Name: "a", Actor: ada, Spec: &csv1.UpgradePolicySpec{Schedule: &csv1.UpgradeSchedule{Cron: "x"}}},
		"one cluster":     {Name: "a", Actor: ada, Spec: &csv1.UpgradePolicySpec{ClusterUid: own.Uid, ChannelGroups: []string{"fast"}}},
		"a channel group": {Name: "a", Actor: ada, Spec: &csv1.UpgradePolicySpec{ChannelGroups: []string{"slow"}}},
	} {
		if _, err := service.ApplyUpgradePolicy(ctx, request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("without %s: %v", reason, err)
		}
	}
}
