package fleet_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// contents is a Renderer whose digests are those of the rendered specs and releases.
type contents struct{}

func (contents) OmittedRanges(*fleet.Cluster) []string { return nil }

func (contents) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	digest := func(release fleet.Release, specs ...proto.Message) (text string) {
		for _, spec := range specs {
			encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
			text += hex.EncodeToString(encoded) + " "
		}
		return text + release.Version
	}
	if p := t.Pool(w.OwnerUID); p != nil {
		return digest(p.Release, p.Spec), nil
	}
	if w.Kind == fleet.Namespaces {
		return "namespaces", nil
	}
	if a := t.RenderedExternalAuth(); a != nil {
		return digest(t.Cluster.Release, t.Cluster.Spec, a.Spec), nil
	}
	return digest(t.Cluster.Release, t.Cluster.Spec), nil
}

// updating is a cluster with a node pool whose desired state changes.
type updating struct {
	*testing.T
	*fleet.ClusterAggregate
	// nodes is the number of nodes that the pool has.
	nodes int64
}

func (u *updating) settle() {
	u.Helper()
	settle(u.T, u.ClusterAggregate, contents{})
}

// report reports all works but those in refused as applied. refused has the refused fields by kind of work; a refusal without fields is Maestro's.
func (u *updating) report(refused map[fleet.WorkKind][]string) {
	u.Helper()
	for _, w := range u.Works {
		fields, isRefused := refused[w.Kind]
		switch {
		case isRefused && len(fields) == 0:
			w.Refused, w.Error = true, "too large"
			continue
		case isRefused:
			refuse(w, w.Desired, fields...)
			continue
		}
		o := acted(configured(w.Digest, "True", w.Desired, w.Desired), w.Desired, w.Desired)
		if w.Kind == fleet.NodePoolWork {
			o = applied(w.Digest)
			o.Replicas, o.Version, o.Conditions = u.nodes, u.Pools[0].Release.Version, map[string]feedback.Condition{feedback.AllMachines: {Status: "True"}}
		}
		observe(w, o)
		w.Version, w.Sequence = 0, ""
	}
	u.observed()
}

func (u *updating) observed() {
	u.Helper()
	must.Do(u, region.SettleObserved(start, u.ClusterAggregate, contents{}))
}

func (u *updating) changePool(change func(spec *csv1.NodePoolSpec)) {
	p := u.Pools[0]
	p.BeginUpdate(u.ClusterAggregate)
	p.Generation, p.Spec = p.Generation+1, proto.CloneOf(p.Spec)
	change(p.Spec)
	u.settle()
}

func (u *updating) label(tier string) {
	u.changePool(func(spec *csv1.NodePoolSpec) { spec.Labels = map[string]string{"tier": tier} })
}

func (u *updating) changeCluster(podCIDR string) {
	c := u.Cluster
	c.BeginUpdate(u.ClusterAggregate)
	c.Generation, c.Spec = c.Generation+1, proto.CloneOf(c.Spec)
	c.Spec.Version, c.Spec.Network = nil, &csv1.Network{PodCidr: podCIDR}
	u.settle()
}

func (u *updating) changeAuth(issuer string) {
	if len(u.ExternalAuths) == 0 {
		u.ExternalAuths = []*fleet.ExternalAuth{{UID: "e1", ClusterUID: clusterUID, Status: &csv1.ExternalAuthStatus{}}}
	}
	a := u.ExternalAuths[0]
	a.BeginUpdate(u.ClusterAggregate)
	a.Generation, a.Spec = a.Generation+1, &csv1.ExternalAuthSpec{Name: "entra", Issuer: &csv1.TokenIssuer{Url: issuer}}
	u.settle()
}

// TestRefusedUpdateIsTakenBack: the refused resource has its last accepted desired state again. Its generation stays failed until the next one.
func TestRefusedUpdateIsTakenBack(t *testing.T) {
	const issuer, cidr, label = "spec.configuration.authentication.oidcProviders[0].issuer.issuerURL", "spec.networking.clusterNetwork[0].cidr", "spec.nodeLabels"
	hosted := func(fields ...string) map[fleet.WorkKind][]string {
		return map[fleet.WorkKind][]string{fleet.HostedCluster: fields}
	}
	pool := func(fields ...string) map[fleet.WorkKind][]string {
		return map[fleet.WorkKind][]string{fleet.NodePoolWork: fields}
	}
	tests := map[string]struct {
		reason string
		steps  func(u *updating)
		// refused are the resources whose generation is refused. in, unless it is empty, is in the rendered content of their work; out is not.
		refused []string
		in, out string
		// observed is the observed generation of the first refused resource after the return.
		observed int64
		drift    string
	}{
		"Pool": {"the update before was applied", func(u *updating) { u.label("silver"); u.report(nil); u.label("gold"); u.report(pool(label)) },
			[]string{"pool"}, "silver", "gold", 2, clusterstatus.DriftApplyRefused},
		"Pool, by Maestro": {"the content is too large", func(u *updating) { u.label("gold"); u.report(pool()) }, []string{"pool"}, "", "gold", 1, clusterstatus.DriftRefused},
		"Update over an update": {"the first one was never seen", func(u *updating) { u.label("silver"); u.label("gold"); u.report(pool(label)) },
			[]string{"pool"}, "", "silver", 1, clusterstatus.DriftApplyRefused},
		"Applied without effect": {"the management cluster accepted it, and the nodes have yet to change", func(u *updating) {
			u.changePool(func(spec *csv1.NodePoolSpec) { spec.Size = &csv1.NodePoolSpec_Replicas{Replicas: 3} })
			u.report(nil)
			u.label("gold")
			u.report(pool(label))
			u.nodes = 3
		}, []string{"pool"}, "", "gold", 2, clusterstatus.DriftApplyRefused},
		"Second refusal": {"the customer repeats the request", func(u *updating) {
			u.label("gold")
			u.report(pool(label))
			u.report(nil)
			u.label("gold")
			u.report(pool(label))
		},
			[]string{"pool"}, "", "gold", 1, clusterstatus.DriftApplyRefused},
		"Version of a pool": {"the release is refused", func(u *updating) {
			u.changePool(func(spec *csv1.NodePoolSpec) { spec.Version = &csv1.Version{Id: "4.21.9"} })
			u.Pools[0].Release = fleet.Release{Version: "4.21.9", Image: "image-4.21.9"}
			u.settle()
			u.report(pool("spec.release.image"))
			if u.Pools[0].Release.Version != "4.21.4" {
				u.Errorf("the release is %v", u.Pools[0].Release)
			}
		}, []string{"pool"}, "4.21.4", "4.21.9", 1, clusterstatus.DriftApplyRefused},
		"Cluster": {"the HostedCluster is refused", func(u *updating) { u.changeCluster("10.1.0.0/16"); u.report(hosted(cidr)) },
			[]string{"cluster"}, "", "10.1.0.0/16", 1, clusterstatus.DriftApplyRefused},
		"Creation of an external authentication": {"the cluster had none", func(u *updating) { u.changeAuth("https://a"); u.report(hosted(issuer)) },
			[]string{"auth"}, "", "https://a", 0, clusterstatus.DriftApplyRefused},
		"External authentication": {"it had another issuer", func(u *updating) {
			u.changeAuth("https://a")
			u.report(nil)
			u.changeAuth("https://b")
			u.report(hosted(issuer))
		},
			[]string{"auth"}, "https://a", "https://b", 1, clusterstatus.DriftApplyRefused},
		"Two updates, one refused": {"the field is one of the cluster", func(u *updating) {
			u.changeAuth("https://a")
			u.changeCluster("10.1.0.0/16")
			u.report(hosted(cidr))
		}, []string{"cluster"}, "https://a", "10.1.0.0/16", 1, clusterstatus.DriftApplyRefused},
		"Two updates, unknown": {"the field can be one of each", func(u *updating) {
			u.changeAuth("https://a")
			u.changeCluster("10.1.0.0/16")
			u.report(hosted("spec"))
		}, []string{"cluster", "auth"}, "", "https://a", 1, clusterstatus.DriftApplyRefused},
		"Upgrade by the customer": {"the new release is refused", func(u *updating) {
			c := u.Cluster
			c.BeginUpdate(u.ClusterAggregate)
			c.Generation, c.Spec = 2, proto.CloneOf(c.Spec)
			c.Spec.Version = &csv1.Version{Id: "4.22"}
			steps := []*csv1.UpgradeStep{{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.21.4", ToVersion: "4.22.1", ToImage: "image-4.22.1", State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED}}
			upgrade := fleet.NewUpgrade("u", clusterUID, &csv1.UpgradeSpec{Version: "4.22.1", ClusterGeneration: 2}, "4.21.4", steps, start)
			u.Upgrades = []*fleet.Upgrade{upgrade}
			must.Do(u, upgrade.Acknowledge(start, u.ClusterAggregate, fleet.GateMinorVersion, actor))
			u.settle()
			u.report(hosted("spec.release.image"))
			if upgrade.State() != csv1.UpgradeState_UPGRADE_STATE_FAILED {
				u.Errorf("the upgrade is %v", upgrade.Status)
			}
		}, []string{"cluster"}, "4.21.4", "4.22.1", 1, clusterstatus.DriftApplyRefused},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := &updating{t, placed(t), 2}
			u.settle()
			u.report(nil)
			tc.steps(u)
			c, p := u.Cluster, u.Pools[0]
			type resource struct {
				fleet.Update
				generation, observed int64
				phase                string
				conditions           []*csv1.Condition
				work                 *fleet.Work
				requested            proto.Message
			}
			resources := func() map[string]resource {
				found := map[string]resource{
					"cluster": {c.Update, c.Generation, c.Status.GetObservedGeneration(), c.Status.GetPhase().String(), c.Status.GetConditions(), u.Work(fleet.HostedCluster, ""), c.Proto().GetSpec()},
					"pool":    {p.Update, p.Generation, p.Status.GetObservedGeneration(), p.Status.GetPhase().String(), p.Status.GetConditions(), u.Work(fleet.NodePoolWork, poolUID), p.Proto().GetSpec()},
				}
				for _, a := range u.ExternalAuths {
					found["auth"] = resource{a.Update, a.Generation, a.Status.GetObservedGeneration(), a.Status.GetPhase().String(), a.Status.GetConditions(), u.Work(fleet.HostedCluster, ""), a.Proto().GetSpec()}
				}
				return found
			}
			requireRefused := func(when string) {
				t.Helper()
				for kind, r := range resources() {
					refused := slices.Contains(tc.refused, kind)
					if refused != (r.Refused != nil) || refused != strings.HasSuffix(r.phase, "_FAILED") {
						t.Errorf("%s, the %s is %s, refused: %v; want refused: %t: %s", when, kind, r.phase, r.Refused, refused, tc.reason)
					}
					if !refused {
						continue
					}
					i := slices.IndexFunc(r.conditions, func(c *csv1.Condition) bool { return c.GetType() == clusterstatus.Applied })
					if i < 0 || r.conditions[i].GetStatus() != "False" || r.conditions[i].GetObservedGeneration() != r.generation || !strings.Contains(r.conditions[i].GetMessage(), "is invalid") && !strings.Contains(r.conditions[i].GetMessage(), "too large") {
						t.Errorf("%s, the %s has the conditions %v", when, kind, r.conditions)
					}
					if !proto.Equal(r.requested, r.Refused) {
						t.Errorf("%s, the API has %v, want the refused spec %v", when, r.requested, r.Refused)
					}
					if drift := u.DriftOf(r.work); drift != tc.drift {
						t.Errorf("%s, the drift is %q, want %q", when, drift, tc.drift)
					}
				}
			}
			requireRefused("after the report")
			first := resources()[tc.refused[0]]
			if !first.work.Due() || !strings.Contains(first.work.Digest, hex.EncodeToString([]byte(tc.in))) && !strings.Contains(first.work.Digest, tc.in) ||
				strings.Contains(first.work.Digest, hex.EncodeToString([]byte(tc.out))) || strings.Contains(first.work.Digest, tc.out) {
				t.Errorf("due: %t, content %q", first.work.Due(), first.work.Digest)
			}
			u.report(nil)
			u.settle()
			requireRefused("after the return")
			if first := resources()[tc.refused[0]]; !first.work.Applied() || first.observed != tc.observed {
				t.Errorf("applied: %t, observed generation %d, want %d", first.work.Applied(), first.observed, tc.observed)
			}
			again := u.Clone()
			u.settle()
			if !proto.Equal(again.Cluster.Status, c.Status) || !proto.Equal(again.Pools[0].Status, p.Status) || again.Cluster.Update != c.Update || again.Pools[0].Update != p.Update {
				t.Error("settling twice changes the resources")
			}
			// The next generation is applied, and nothing of the refused one stays.
			u.label("bronze")
			u.changeCluster("10.2.0.0/16")
			u.changeAuth("https://c")
			u.report(nil)
			for kind, r := range resources() {
				if r.Update != (fleet.Update{}) || r.observed != r.generation || !strings.HasSuffix(r.phase, "_READY") || u.DriftOf(r.work) != "" {
					t.Errorf("after the next update, the %s is %s, generation %d of %d, update %v, drift %q", kind, r.phase, r.observed, r.generation, r.Update, u.DriftOf(r.work))
				}
			}
		})
	}
}

// TestRefusedContentWithoutUpdateStays: without an accepted desired state, or with a report about another content, nothing is taken back.
func TestRefusedContentWithoutUpdateStays(t *testing.T) {
	tests := map[string]struct {
		reason string
		steps  func(u *updating)
	}{
		"Creation": {"nothing was accepted", func(u *updating) {
			u.settle()
			u.report(map[fleet.WorkKind][]string{fleet.HostedCluster: {"spec.fips"}, fleet.NodePoolWork: {"spec.nodeLabels"}})
		}},
		"Creation with an external authentication": {"the cluster can be the cause", func(u *updating) {
			u.changeAuth("https://a")
			u.report(map[fleet.WorkKind][]string{fleet.HostedCluster: {"spec"}})
		}},
		"Another rendering": {"the customer has changed nothing", func(u *updating) {
			u.settle()
			u.report(nil)
			w := u.Work(fleet.NodePoolWork, poolUID)
			w.Desired++
			refuse(w, w.Desired, "spec.arch")
			u.observed()
		}},
		"Update after a refused rendering": {"the update is not refused yet", func(u *updating) {
			u.settle()
			u.report(nil)
			w := u.Work(fleet.NodePoolWork, poolUID)
			w.Desired++
			refuse(w, w.Desired, "spec.arch")
			u.label("gold")
		}},
		"Older report": {"the refusal is about the content before", func(u *updating) {
			u.settle()
			u.report(nil)
			u.label("gold")
			w := u.Work(fleet.NodePoolWork, poolUID)
			refuse(w, w.Desired-1, "spec.nodeLabels")
			u.observed()
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := &updating{t, placed(t), 2}
			tc.steps(u)
			if u.Cluster.Refused != nil || u.Pools[0].Refused != nil || len(u.ExternalAuths) > 0 && u.ExternalAuths[0].Refused != nil {
				t.Errorf("an update is taken back: %s", tc.reason)
			}
		})
	}
}

// TestReleaseThatObjectHasIsNotLowered: a refusal after the new release was applied, and before a report of that, does not lower the release.
func TestReleaseThatObjectHasIsNotLowered(t *testing.T) {
	w := newWorld(t, "4.20.15")
	w.begin("4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	work := w.Work(fleet.HostedCluster, "")
	refuse(work, work.Desired, "spec.release.image")
	work.Observed.Image = w.Cluster.Release.Image
	w.settle()
	if w.Cluster.Release.Version != "4.20.16" {
		t.Errorf("the release is %v", w.Cluster.Release)
	}
}
