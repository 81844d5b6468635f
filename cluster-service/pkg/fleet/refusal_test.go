package fleet_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// refuse reports that the management cluster permanently refuses a version of a work whose desired content Maestro acknowledged as
// version Desired.
func refuse(w *fleet.Work, version int64, fields ...string) {
	kind := "HostedCluster"
	if w.Kind == fleet.NodePoolWork {
		kind = "NodePool"
	}
	w.Published, w.Version = w.Desired, w.Desired
	w.Observed.Applied = feedback.Condition{Status: "False", Reason: "AppliedManifestWorkFailed"}
	w.Observed.Refusal = &feedback.Refusal{Reason: maestroapi.RefusedInvalid, Kind: kind, Name: "x", Fields: fields, Message: "is invalid", Version: version}
}

// refusedBy returns the condition Applied if it states a permanent refusal.
func refusedBy(conditions []*csv1.Condition) *csv1.Condition {
	i := slices.IndexFunc(conditions, func(c *csv1.Condition) bool {
		return c.GetType() == clusterstatus.Applied && c.GetStatus() == "False" && c.GetReason() == clusterstatus.ApplyRefused
	})
	if i < 0 {
		return nil
	}
	return conditions[i]
}

// TestRefusalIsAboutDesiredContent: a report about another content, or that may be about one, ends nothing.
func TestRefusalIsAboutDesiredContent(t *testing.T) {
	tests := map[string]struct {
		reason  string
		work    fleet.Work
		version int64
		want    bool
	}{
		"Current":          {"the acknowledged version is refused", fleet.Work{Desired: 3, Published: 3, Version: 7}, 7, true},
		"Republished":      {"another replica published it again", fleet.Work{Desired: 3, Published: 3, Version: 7}, 8, true},
		"Older":            {"the report is about the content before", fleet.Work{Desired: 3, Published: 3, Version: 7}, 6, false},
		"Not published":    {"newer content is on its way", fleet.Work{Desired: 4, Published: 3, Version: 7}, 7, false},
		"Answer lost":      {"it may be about content in between", fleet.Work{Desired: 4, Published: 3, Version: 7}, 8, false},
		"Version unknown":  {"Maestro does not report versions", fleet.Work{Desired: 3, Published: 3}, 7, false},
		"Deleting":         {"what is deleted need not be applied", fleet.Work{Desired: 3, Published: 3, Version: 7, DeleteTime: start}, 7, false},
		"Without a report": {"nothing is refused", fleet.Work{Desired: 3, Published: 3, Version: 7}, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.version > 0 {
				tc.work.Observed.Refusal = &feedback.Refusal{Version: tc.version}
			}
			if got := tc.work.Refusal() != nil; got != tc.want {
				t.Errorf("refused: %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestRefusedChangeFails: the refusal of the desired content fails the resource whose change it is, and no other. Only a later change or a
// management cluster that accepts the content ends that.
func TestRefusedChangeFails(t *testing.T) {
	const (
		failed   = "FAILED"
		ready    = "READY"
		updating = "UPDATING"
		begun    = "INSTALLING"
	)
	hostedCluster := func(a *fleet.ClusterAggregate) *fleet.Work { return a.Work(fleet.HostedCluster, "") }
	pool := func(a *fleet.ClusterAggregate) *fleet.Work { return a.Work(fleet.NodePoolWork, poolUID) }
	installed := func(a *fleet.ClusterAggregate) {
		observe(hostedCluster(a), acted(configured("cluster-1", "True", 1, 1), 1, 1))
		o := applied("pool-1")
		o.Replicas, o.Version, o.Conditions = 2, "4.21.4", map[string]feedback.Condition{feedback.AllMachines: {Status: "True"}}
		observe(pool(a), o)
	}
	reject := func(work func(*fleet.ClusterAggregate) *fleet.Work, fields ...string) func(*fleet.ClusterAggregate) {
		return func(a *fleet.ClusterAggregate) { refuse(work(a), work(a).Desired, fields...) }
	}
	changeCluster := func(a *fleet.ClusterAggregate) { a.Cluster.Generation++ }
	changePool := func(a *fleet.ClusterAggregate) { a.Pools[0].Generation++ }
	// The digest of these tests is of the cluster's generation.
	addAuth := func(a *fleet.ClusterAggregate) {
		a.ExternalAuths = []*fleet.ExternalAuth{{UID: "e1", Generation: 1, Spec: &csv1.ExternalAuthSpec{Name: "entra", Issuer: &csv1.TokenIssuer{Url: "https://login.example.com"}}}}
		hostedCluster(a).Desired++
	}
	const vmSize, issuer = "spec.platform.azure.vmSize", "spec.configuration.authentication.oidcProviders[0].issuer.issuerURL"
	tests := map[string]struct {
		reason              string
		steps               []func(*fleet.ClusterAggregate)
		cluster, pool, auth string
		// properties are those of the condition Applied of the resource that failed.
		properties []string
	}{
		"Create of a cluster": {"nothing was accepted before", []func(*fleet.ClusterAggregate){reject(hostedCluster, "spec.fips")}, failed, begun, "", []string{"properties.cryptoRestrictions"}},
		"Namespace": {"the HostedCluster has no namespace", []func(*fleet.ClusterAggregate){reject(func(a *fleet.ClusterAggregate) *fleet.Work { return a.Work(fleet.Namespaces, "") })},
			failed, begun, "", nil},
		"Create of a pool": {"the cluster is not the cause", []func(*fleet.ClusterAggregate){func(a *fleet.ClusterAggregate) {
			observe(hostedCluster(a), acted(configured("cluster-1", "True", 1, 1), 1, 1))
		}, reject(pool, vmSize, "spec.arch", "spec.release.image")}, ready, failed, "", []string{"properties.platform.vmSize"}},
		"Update of a cluster": {"the control plane keeps its configuration", []func(*fleet.ClusterAggregate){installed, changeCluster, reject(hostedCluster, "spec.release.image")}, failed, ready, "", nil},
		"Update of a pool":    {"the nodes stay as they are", []func(*fleet.ClusterAggregate){installed, changePool, reject(pool, "spec.taints[2].key")}, ready, failed, "", []string{"properties.taints[2].key"}},
		"Update without a change of the content": {"the content is still refused", []func(*fleet.ClusterAggregate){installed, changePool, reject(pool, vmSize),
			func(a *fleet.ClusterAggregate) { a.Pools[0].Generation++; pool(a).Digest = "pool-3" }}, ready, failed, "", []string{"properties.platform.vmSize"}},
		"Another rendering": {"the customer has changed nothing", []func(*fleet.ClusterAggregate){installed, func(a *fleet.ClusterAggregate) { hostedCluster(a).Desired++; pool(a).Desired++ },
			reject(hostedCluster), reject(pool)}, ready, ready, "", nil},
		"External authentication": {"the cluster keeps its configuration", []func(*fleet.ClusterAggregate){installed, addAuth, reject(hostedCluster, issuer)}, ready, ready, failed, []string{"properties.issuer.url"}},
		"Cluster with a refused external authentication": {"the property is not one of the cluster", []func(*fleet.ClusterAggregate){installed, addAuth, changeCluster, reject(hostedCluster, issuer)},
			failed, ready, failed, []string{"properties.issuer.url"}},
		"Older report":        {"the change is on its way", []func(*fleet.ClusterAggregate){installed, reject(pool, vmSize), changePool}, ready, updating, "", nil},
		"Older report, acked": {"Maestro has the change, the agent has not", []func(*fleet.ClusterAggregate){installed, changePool, func(a *fleet.ClusterAggregate) { refuse(pool(a), pool(a).Desired-1, vmSize) }}, ready, updating, "", nil},
		"Corrected": {"the API server accepts it", []func(*fleet.ClusterAggregate){installed, changePool, reject(pool, vmSize), changePool, func(a *fleet.ClusterAggregate) {
			pool(a).Version, pool(a).Sequence = 3, "3 1 agent"
			o := applied("pool-3")
			o.Replicas, o.Version, o.Conditions = 2, "4.21.4", map[string]feedback.Condition{feedback.AllMachines: {Status: "True"}}
			observe(pool(a), o)
		}}, ready, ready, "", nil},
		"Accepted later": {"an engineer corrected the management cluster", []func(*fleet.ClusterAggregate){reject(hostedCluster, "spec.fips"), func(a *fleet.ClusterAggregate) {
			hostedCluster(a).Sequence = "1 2 agent"
			observe(hostedCluster(a), acted(configured("cluster-1", "True", 1, 1), 1, 1))
		}}, ready, begun, "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			for i, step := range tc.steps {
				step(aggregate)
				must.Do(t, region.Settle(start.Add(time.Duration(i)*time.Second), aggregate, versions{}))
			}
			var properties []string
			require := func(noun, want, got string, conditions []*csv1.Condition) {
				t.Helper()
				if got != want {
					t.Errorf("the %s is %s, want %s: %s", noun, got, want, tc.reason)
				}
				c := refusedBy(conditions)
				if want == failed && c == nil {
					t.Errorf("the %s has no reason: %v", noun, conditions)
				}
				if want == failed {
					properties = append(properties, clusterstatus.RefusedProperties(c.GetMessage())...)
				}
			}
			cluster, pool := aggregate.Cluster.Status, aggregate.Pools[0].Status
			require("cluster", tc.cluster, cluster.GetPhase().String()[len("CLUSTER_PHASE_"):], cluster.GetConditions())
			require("pool", tc.pool, pool.GetPhase().String()[len("NODE_POOL_PHASE_"):], pool.GetConditions())
			if tc.auth != "" {
				auth := aggregate.ExternalAuths[0].Status
				require("authentication", tc.auth, auth.GetPhase().String()[len("EXTERNAL_AUTH_PHASE_"):], auth.GetConditions())
			}
			if !slices.Equal(properties, tc.properties) {
				t.Errorf("the properties are %v, want %v", properties, tc.properties)
			}
			again := aggregate.Clone()
			settle(t, again, versions{})
			if !proto.Equal(again.Cluster.Status, aggregate.Cluster.Status) || !proto.Equal(again.Pools[0].Status, aggregate.Pools[0].Status) {
				t.Error("settling twice changes the statuses")
			}
		})
	}
}
