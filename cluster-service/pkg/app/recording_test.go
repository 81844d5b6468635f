package app_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/recordeddump"
)

// dump returns this service's part of a dump of a cluster, as admin reads it, with simulated ARM documents.
func (i *instance) dump(t *testing.T, cluster *csv1.ApplyClusterRequest) *adminv1.Dump {
	t.Helper()
	ctx := t.Context()
	c := must.Get(i.GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid}))(t)
	pools := must.Get(i.ListNodePools(ctx, &csv1.ListNodePoolsRequest{ClusterUid: cluster.Uid}))(t)
	auths := must.Get(i.ListExternalAuths(ctx, &csv1.ListExternalAuthsRequest{ClusterUid: cluster.Uid}))(t)
	credentials := must.Get(i.ListBreakGlassCredentials(ctx, &csv1.ListBreakGlassCredentialsRequest{ClusterUid: cluster.Uid}))(t)
	revocations := must.Get(i.ListBreakGlassRevocations(ctx, &csv1.ListBreakGlassRevocationsRequest{ClusterUid: cluster.Uid}))(t)
	shards := must.Get(i.ListProvisionShards(ctx, &csv1.ListProvisionShardsRequest{}))(t)
	upgrades := must.Get(i.ListUpgrades(ctx, &csv1.ListUpgradesRequest{ClusterUid: cluster.Uid}))(t)
	dump := &adminv1.Dump{
		TakenAt: time.Now().UTC(), Cluster: adminv1.Cluster{UID: c.GetUid(), ResourceID: c.GetResourceId()},
		ClusterService: &adminv1.FleetLayer{
			Cluster: &adminv1.FleetCluster{Of: c}, NodePools: adminv1.Messages(pools.GetNodePools()), ExternalAuths: adminv1.Messages(auths.GetExternalAuths()),
			Credentials: adminv1.Messages(credentials.GetCredentials()), Revocations: adminv1.Messages(revocations.GetRevocations()),
			Upgrades: adminv1.Messages(upgrades.GetUpgrades()), ProvisionShards: adminv1.Messages(shards.GetProvisionShards()),
		},
		ARM: &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: adminv1.ARMState{UID: c.GetUid(), Generation: c.GetGeneration()}}},
	}
	dump.ARM.Cluster.Resource.ID = c.GetResourceId()
	for _, p := range pools.GetNodePools() {
		record := adminv1.ARMNodePool{ARMState: adminv1.ARMState{UID: p.GetUid(), Generation: p.GetGeneration()}}
		record.Resource.ID = p.GetResourceId()
		dump.ARM.NodePools = append(dump.ARM.NodePools, record)
	}
	for _, a := range auths.GetExternalAuths() {
		record := adminv1.ARMExternalAuth{ARMState: adminv1.ARMState{UID: a.GetUid(), Generation: a.GetGeneration()}}
		record.Resource.ID = a.GetResourceId()
		dump.ARM.ExternalAuths = append(dump.ARM.ExternalAuths, record)
	}
	return dump
}

// awaitRecording waits until the service reports of a cluster what the recording holds. It then waits until the service has settled, because
// a recording that differs fails at once only in a situation that settles.
func (i *instance) awaitRecording(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest, name string) {
	t.Helper()
	recordeddump.Await(t, "cluster-service/"+name, func() *adminv1.Dump { return i.dump(t, cluster) }, r.settled)
	eventually.Soon(t, "the service has settled", r.settled)
}

// settled returns an error while a work is to be published to a Maestro that serves, and while Cluster Service does not have the last status of
// each work. The service changes works and what it reports of their cluster in one transaction: when no work and no status is on its way, only
// a request or the clock changes what it reports.
func (r *region) settled() error {
	direct, err := pgx.Connect(r.t.Context(), r.url)
	if err != nil {
		return err
	}
	defer direct.Close(context.WithoutCancel(r.t.Context()))
	rows, err := direct.Query(r.t.Context(), `SELECT id::text, name, status_hash, CASE WHEN delete_time IS NULL THEN published >= desired OR refused ELSE delete_published END FROM works`)
	if err != nil {
		return err
	}
	hashes := map[string]string{}
	var id, name, hash string
	var published bool
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &hash, &published}, func() error {
		hashes[id] = hash
		if !published && !r.maestro.Stopped() {
			return fmt.Errorf("work %s is not published", name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.maestro.Settled(hashes)
}

// runManagementClustersWith runs management clusters whose HyperShift adds to the reported objects.
func (r *region) runManagementClustersWith(add func(object maestrotest.Object)) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	r.hypershift = maestrotest.NewHyperShift(r.versions())
	group.Go(func() {
		r.maestro.RunAgents(ctx, func(object maestrotest.Object, calls int) bool {
			again := r.hypershift.Reconcile(object, calls)
			add(object)
			return again
		})
	})
	r.t.Cleanup(func() { cancel(); group.Wait() })
}

// report replaces conditions of an object.
func report(object maestrotest.Object, conditions map[string][3]string) {
	objectStatus := object["status"].(maestrotest.Object)
	changed := maps.Clone(conditions)
	var list []any
	for _, entry := range objectStatus["conditions"].([]any) {
		if _, replaced := changed[entry.(maestrotest.Object)["type"].(string)]; !replaced {
			list = append(list, entry)
		}
	}
	for kind, c := range changed {
		list = append(list, maestrotest.Object{"type": kind, "status": c[0], "reason": c[1], "message": c[2]})
	}
	objectStatus["conditions"] = list
}

// outermost reports whether an entry of a progress is the first one that is not settled.
func outermost(progress []*csv1.LayerProgress, layer, state string) bool {
	for _, p := range progress {
		if p.GetLayer() == layer && p.GetState() == state {
			return true
		}
		if s := p.GetState(); s != "Placed" && s != "Published" && s != "Applied" {
			return false
		}
	}
	return false
}

// TestReportsInSituations brings a cluster into each situation and compares what the service reports with the recording that
// admin's tests explain.
func TestReportsInSituations(t *testing.T) {
	t.Parallel()
	request := func() *csv1.ApplyClusterRequest { return applyRequest("demo", 1) }
	apply := func(t *testing.T, s *instance, cluster *csv1.ApplyClusterRequest) {
		t.Helper()
		must.Get(s.ApplyCluster(t.Context(), cluster))(t)
	}
	ready := func(t *testing.T, s *instance, cluster *csv1.ApplyClusterRequest) {
		t.Helper()
		apply(t, s, cluster)
		s.awaitCluster(t, cluster.Uid, clusterReady(cluster.Generation))
	}
	// entry waits until an entry is the outermost of the cluster's progress that is about something.
	entry := func(t *testing.T, s *instance, cluster *csv1.ApplyClusterRequest, layer, state string) {
		t.Helper()
		s.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool { return outermost(c.GetStatus().GetProgress(), layer, state) })
	}
	tests := map[string]struct {
		reason string
		shards []config.Shard
		bring  func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance
	}{
		"ready": {"nothing is awaited", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			_, s := r.run()
			ready(t, s, cluster)
			s.createReadyPool(t, cluster, "workers", 2)
			return s
		}},
		"upgrade-rolling-out": {"the cluster is ready, and its control plane moves", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			_, s := r.run()
			s.installed(t, "demo", "4.20.8") // the same cluster, by its name
			r.hypershift.HoldUpgrades(true)
			must.Get(s.StartUpgrade(t.Context(), startRequest(cluster, "4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)))(t)
			s.awaitCluster(t, cluster.Uid, runs("4.20.16", "4.20.8"))
			return s
		}},
		"no-capacity": {"every shard is full", []config.Shard{{Name: "mgmt-1", Capacity: 0}}, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "placement", "WaitingForCapacity")
			return s
		}},
		"agent-unresponsive": {"Maestro took it and nobody answers", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			return s
		}},
		"maestro-unavailable": {"nothing listens", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			r.maestro.Stop()
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Retrying")
			return s
		}},
		"manifests-rejected": {"the content will never be taken", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.maestro.Fault(func(string, *maestrotest.Resource) (error, error) {
				return status.Error(codes.InvalidArgument, "the bundle is too large"), nil
			})
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Refused")
			return s
		}},
		"control-plane-starting": {"HyperShift is at it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.runManagementClustersWith(func(object maestrotest.Object) {
				if object["kind"] == "HostedCluster" {
					report(object, map[string][3]string{"Available": {"False", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum"}})
				}
			})
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "control-plane", "EtcdWaitingForQuorum")
			return s
		}},
		"control-plane-unavailable": {"it was ready before", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			var bad sync.Map
			r.runManagementClustersWith(func(object maestrotest.Object) {
				if _, now := bad.Load("now"); now && object["kind"] == "HostedCluster" {
					report(object, map[string][3]string{"Available": {"False", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum"}})
				}
			})
			s := r.start(nil)
			ready(t, s, cluster)
			bad.Store("now", true)
			r.maestro.Touch()
			entry(t, s, cluster, "control-plane", "EtcdWaitingForQuorum")
			return s
		}},
		"nodes-not-ready": {"some nodes do not come", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.runManagementClustersWith(func(object maestrotest.Object) {
				if object["kind"] == "NodePool" {
					object["status"].(maestrotest.Object)["replicas"] = float64(1)
					report(object, map[string][3]string{"AllMachinesReady": {"False", "Provisioning", "2 of 3 machines are not ready"}})
				}
			})
			s := r.start(nil)
			ready(t, s, cluster)
			pool := poolRequest(cluster, "workers", 3)
			s.applyPool(t, pool, func(p *csv1.NodePool) bool {
				return p.GetStatus().GetReplicas() == 1 && outermost(p.GetStatus().GetProgress(), "node-pool", "WaitingForNodes")
			})
			return s
		}},
		"awaiting-secret": {"only the customer has it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			_, s := r.run()
			ready(t, s, cluster)
			auth := authRequest(cluster, "entra", 1)
			must.Get(s.ApplyExternalAuth(t.Context(), auth))(t)
			s.watchUntil(t, func(w *csv1.WatchResponse) bool {
				return w.GetExternalAuth().GetStatus().GetPhase() == csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET
			}, func() string { return "the external auth" })
			return s
		}},
		"update-rolling-out": {"a newer release is on its way", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.runManagementClustersWith(func(object maestrotest.Object) {
				if object["kind"] != "HostedCluster" {
					return
				}
				image := object["spec"].(maestrotest.Object)["release"].(maestrotest.Object)["image"].(string)
				if r.versions()[image] == "4.22.2" {
					history := object["status"].(maestrotest.Object)["controlPlaneVersion"].(maestrotest.Object)
					old, _ := r.releases.Exact("4.21.4")
					history["history"] = []any{maestrotest.Object{"state": "Partial", "image": image, "version": "4.22.2"},
						maestrotest.Object{"state": "Completed", "image": old.Image, "version": "4.21.4"}}
				}
			})
			s := r.start(nil)
			ready(t, s, cluster)
			cluster.Generation, cluster.Spec.Version.Id = 2, "4.22"
			apply(t, s, cluster)
			s.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool {
				return len(c.GetStatus().GetActiveVersions()) == 2 && outermost(c.GetStatus().GetProgress(), "control-plane", "RollingOut")
			})
			return s
		}},
		"deleting": {"nobody confirms it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			s.remove(t, cluster.Uid)
			s.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
			return s
		}},
		"revoking": {"HyperShift replaces the signer", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.play()
			r.hypershift.Hold(true)
			s := r.start(nil)
			ready(t, s, cluster)
			must.Get(s.RevokeBreakGlassCredentials(t.Context(), &csv1.RevokeBreakGlassCredentialsRequest{Uid: "d0c4d6a0-5a3e-4d5e-93f5-6b2b8e2b1f31", ClusterUid: cluster.Uid, Class: customer, Requester: "ada"}))(t)
			s.watchUntil(t, func(w *csv1.WatchResponse) bool {
				return outermost(w.GetBreakGlassRevocation().GetStatus().GetProgress(), "control-plane", "AwaitingRootCertificatesRegenerated")
			}, func() string { return "the revocation" })
			return s
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t, tc.shards...)
			cluster := request()
			s := tc.bring(t, r, cluster)
			s.awaitRecording(t, r, cluster, name)
		})
	}
}
