package app_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/explanation"
)

// facts are what this service tells of a cluster, as they will look after a time in which nothing more happens; ARM's
// records are as they would be.
func (i *instance) facts(t *testing.T, cluster *csv1.ApplyClusterRequest, later time.Duration) *explanation.Facts {
	t.Helper()
	ctx := t.Context()
	f := &explanation.Facts{Now: time.Now().Add(later), Asked: cluster.Spec.Name, Matches: []string{cluster.ResourceId}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	f.Cluster, err = i.GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid})
	must(err)
	pools, err := i.ListNodePools(ctx, &csv1.ListNodePoolsRequest{ClusterUid: cluster.Uid})
	must(err)
	auths, err := i.ListExternalAuths(ctx, &csv1.ListExternalAuthsRequest{ClusterUid: cluster.Uid})
	must(err)
	credentials, err := i.ListBreakGlassCredentials(ctx, &csv1.ListBreakGlassCredentialsRequest{ClusterUid: cluster.Uid})
	must(err)
	revocations, err := i.ListBreakGlassRevocations(ctx, &csv1.ListBreakGlassRevocationsRequest{ClusterUid: cluster.Uid})
	must(err)
	shards, err := i.ListProvisionShards(ctx, &csv1.ListProvisionShardsRequest{})
	must(err)
	upgrades, err := i.ListUpgrades(ctx, &csv1.ListUpgradesRequest{ClusterUid: cluster.Uid})
	must(err)
	f.Upgrades = upgrades.GetUpgrades()
	f.NodePools, f.ExternalAuths, f.Shards = pools.GetNodePools(), auths.GetExternalAuths(), shards.GetProvisionShards()
	f.Credentials, f.Revocations = credentials.GetCredentials(), revocations.GetRevocations()
	f.Records = append(f.Records, explanation.Record{ResourceID: f.Cluster.GetResourceId(), Generation: f.Cluster.GetGeneration()})
	for _, p := range f.NodePools {
		f.Records = append(f.Records, explanation.Record{ResourceID: p.GetResourceId(), Generation: p.GetGeneration()})
	}
	for _, a := range f.ExternalAuths {
		f.Records = append(f.Records, explanation.Record{ResourceID: a.GetResourceId(), Generation: a.GetGeneration()})
	}
	return f
}

// playWith is play with a HyperShift that adds to what objects report.
func (r *region) playWith(add func(object maestrotest.Object)) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	r.hypershift = maestrotest.NewHyperShift(r.versions())
	group.Go(func() {
		r.maestro.Play(ctx, func(object maestrotest.Object, calls int) bool {
			again := r.hypershift.Behave(object, calls)
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

// outermost says whether an entry of a progress is the first behind those that are settled.
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

// wantedAnswer is what the first and only finding of an explanation should be.
type wantedAnswer struct {
	Layer, State string
	Who          explanation.Party
	// Says are parts of the answer.
	Says []string
}

// differs says what of an answer is not as wanted.
func (w wantedAnswer) differs(answer explanation.Explanation) []string {
	var problems []string
	first, text := answer.Findings[0], strings.Join(strings.Fields(answer.Text()), " ")
	if len(answer.Findings) != 1 || first.Layer != w.Layer || first.State != w.State || first.Who != w.Who {
		problems = append(problems, fmt.Sprintf("the first of %d findings is %s %s, %s has to act; want %s %s, %s", len(answer.Findings),
			first.Layer, first.State, first.Who, w.Layer, w.State, w.Who))
	}
	for _, part := range w.Says {
		if !strings.Contains(text, part) {
			problems = append(problems, fmt.Sprintf("the answer does not say %q", part))
		}
	}
	return problems
}

// TestExplanations brings a cluster into each situation and has it explained from what the service itself says.
func TestExplanations(t *testing.T) {
	t.Parallel()
	request := func() *csv1.ApplyClusterRequest { return applyRequest("demo", 1) }
	apply := func(t *testing.T, s *instance, cluster *csv1.ApplyClusterRequest) {
		t.Helper()
		if _, err := s.ApplyCluster(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
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
	// awaitStep waits until a step of the cluster's deletion is under way.
	awaitStep := func(t *testing.T, s *instance, cluster *csv1.ApplyClusterRequest, name string) {
		t.Helper()
		s.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool {
			for _, step := range c.GetStatus().GetDeletion().GetSteps() {
				if step.GetName() == name && step.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
					return true
				}
			}
			return false
		})
	}
	tests := map[string]struct {
		reason string
		shards []config.Shard
		bring  func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance
		later  time.Duration
		want   wantedAnswer
	}{
		"ready": {"nothing is awaited", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.play()
			s := r.start(nil)
			ready(t, s, cluster)
			pool := poolRequest(cluster, "workers", 2)
			if _, err := s.ApplyNodePool(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			s.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
				return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY
			})
			return s
		}, 0, wantedAnswer{Who: explanation.Nobody, Says: []string{"Cluster demo is ready.", "runs 4.21.4", "https://127.0.0.1:16443", "workers with 2 nodes of 4.21.4"}}},
		"an SRE's upgrade": {"the cluster is ready, and its control plane moves", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.play()
			s := r.start(nil)
			s.installed(t, "demo", "4.20.8") // the same cluster, by its name
			r.hypershift.HoldUpgrades(true)
			if _, err := s.StartUpgrade(t.Context(), startRequest(cluster, "4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)); err != nil {
				t.Fatal(err)
			}
			s.awaitCluster(t, cluster.Uid, runs("4.20.16", "4.20.8"))
			return s
		}, 5 * time.Second, wantedAnswer{"upgrade", "ControlPlane", explanation.Service, []string{"is ready, but has been waiting for its control plane", "asked for by ada@example.com",
			"The control plane rolls out 4.20.16.", "Nobody has to act"}}},
		"no room": {"every shard is full", []config.Shard{{Name: "mgmt-1", Capacity: 0}}, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			return s
		}, 0, wantedAnswer{"placement", "WaitingForCapacity", explanation.SRE, []string{"a provision shard with room", "mgmt-1 holds 0 of 0 clusters"}}},
		"agent away": {"Maestro took it and nobody answers", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			return s
		}, 10 * time.Minute, wantedAnswer{"management-cluster", "Waiting", explanation.SRE, []string{"the agent of mgmt-", "for 10 minutes"}}},
		"agent at it": {"the same, and not for long", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			return s
		}, 5 * time.Second, wantedAnswer{"management-cluster", "Waiting", explanation.Service, []string{"Nobody has to act"}}},
		"Maestro away": {"nothing listens", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			r.maestro.Stop()
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Retrying")
			return s
		}, 10 * time.Minute, wantedAnswer{"maestro", "Retrying", explanation.SRE, []string{"Maestro to take its manifests", "Cluster Service says “publishing: "}}},
		"Maestro refuses": {"the content will never be taken", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.maestro.Fault(func(string, *maestrotest.Resource) (error, error) {
				return status.Error(codes.InvalidArgument, "the bundle is too large"), nil
			})
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Refused")
			return s
		}, time.Minute, wantedAnswer{"maestro", "Refused", explanation.SRE, []string{"refused its manifests for good", "“the bundle is too large”"}}},
		"control plane comes up": {"HyperShift is at it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.playWith(func(object maestrotest.Object) {
				if object["kind"] == "HostedCluster" {
					report(object, map[string][3]string{"Available": {"False", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum"}})
				}
			})
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "control-plane", "EtcdWaitingForQuorum")
			return s
		}, 4 * time.Minute, wantedAnswer{"control-plane", "EtcdWaitingForQuorum", explanation.Service, []string{"is being created", "“Waiting for etcd to reach quorum”", "for 4 minutes"}}},
		"control plane gone bad": {"it was ready before", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			var bad sync.Map
			r.playWith(func(object maestrotest.Object) {
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
		}, 7 * time.Minute, wantedAnswer{"control-plane", "EtcdWaitingForQuorum", explanation.SRE, []string{"is ready, but its control plane has not been available for 7 minutes"}}},
		"nodes not ready": {"some nodes do not come", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.playWith(func(object maestrotest.Object) {
				if object["kind"] == "NodePool" {
					object["status"].(maestrotest.Object)["replicas"] = float64(1)
					report(object, map[string][3]string{"AllMachinesReady": {"False", "Provisioning", "2 of 3 machines are not ready"}})
				}
			})
			s := r.start(nil)
			ready(t, s, cluster)
			pool := poolRequest(cluster, "workers", 3)
			if _, err := s.ApplyNodePool(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			s.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
				return p.GetStatus().GetReplicas() == 1 && outermost(p.GetStatus().GetProgress(), "node-pool", "WaitingForNodes")
			})
			return s
		}, 30 * time.Minute, wantedAnswer{"node-pool", "WaitingForNodes", explanation.SRE, []string{"Node pool workers is being created", "1 of 3 nodes are ready.", "“2 of 3 machines are not ready” (Provisioning)"}}},
		"awaiting secret": {"only the customer has it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.play()
			s := r.start(nil)
			ready(t, s, cluster)
			auth := authRequest(cluster, "entra", 1)
			if _, err := s.ApplyExternalAuth(t.Context(), auth); err != nil {
				t.Fatal(err)
			}
			s.watchUntil(t, func(w *csv1.WatchResponse) bool {
				return w.GetExternalAuth().GetStatus().GetPhase() == csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET
			}, func() string { return "the external auth" })
			return s
		}, time.Hour, wantedAnswer{"control-plane", "AwaitingSecret", explanation.Customer, []string{"External auth entra is in effect", "Secret openshift-config/entra-console-openshift-console, key clientSecret"}}},
		"update rolls out": {"a newer release is on its way", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.playWith(func(object maestrotest.Object) {
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
		}, 2 * time.Minute, wantedAnswer{"control-plane", "RollingOut", explanation.Service, []string{"is being changed", "on the way from 4.21.4 to 4.22.2"}}},
		"deletion at a step": {"nobody confirms it", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			if _, err := s.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: cluster.Uid}); err != nil {
				t.Fatal(err)
			}
			awaitStep(t, s, cluster, "hosted-cluster")
			return s
		}, 2 * time.Minute, wantedAnswer{"management-cluster", "hosted-cluster", explanation.Service, []string{"is being deleted", "its control plane to be gone for 2 minutes"}}},
		"deletion stuck": {"nobody confirms it for hours", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			s := r.start(nil)
			apply(t, s, cluster)
			entry(t, s, cluster, "maestro", "Published")
			if _, err := s.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: cluster.Uid}); err != nil {
				t.Fatal(err)
			}
			awaitStep(t, s, cluster, "hosted-cluster")
			return s
		}, 5 * time.Hour, wantedAnswer{"management-cluster", "hosted-cluster", explanation.SRE, []string{"for 5 hours", "An SRE has to act"}}},
		"revoking": {"HyperShift replaces the signer", nil, func(t *testing.T, r *region, cluster *csv1.ApplyClusterRequest) *instance {
			r.play()
			r.hypershift.Hold(true)
			s := r.start(nil)
			ready(t, s, cluster)
			if _, err := s.RevokeBreakGlassCredentials(t.Context(), &csv1.RevokeBreakGlassCredentialsRequest{Uid: "d0c4d6a0-5a3e-4d5e-93f5-6b2b8e2b1f31", ClusterUid: cluster.Uid, Class: customer, Requester: "ada"}); err != nil {
				t.Fatal(err)
			}
			s.watchUntil(t, func(w *csv1.WatchResponse) bool {
				return outermost(w.GetBreakGlassRevocation().GetStatus().GetProgress(), "control-plane", "AwaitingRootCertificatesRegenerated")
			}, func() string { return "the revocation" })
			return s
		}, time.Second, wantedAnswer{"control-plane", "AwaitingRootCertificatesRegenerated", explanation.Service, []string{"The revocation by ada", "the control plane to replace the signer"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t, tc.shards...)
			cluster := request()
			s := tc.bring(t, r, cluster)
			var problems []string
			var answer explanation.Explanation
			// What one report changes is not all stored at once: the answer is asked for until it is the one, for a while.
			for end := time.Now().Add(deadline); ; {
				answer = explanation.Of(s.facts(t, cluster, tc.later))
				if problems = tc.want.differs(answer); len(problems) == 0 || time.Now().After(end) {
					break
				}
				select {
				case <-t.Context().Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
			text := strings.Join(strings.Fields(answer.Text()), " ")
			if len(problems) > 0 {
				t.Errorf("%s: %s\n%s", tc.reason, strings.Join(problems, "; "), answer.Text())
			}
			if strings.Contains(text, "not one that I know") {
				t.Errorf("%s: it is not known:\n%s", tc.reason, answer.Text())
			}
		})
	}
}
