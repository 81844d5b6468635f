package explanation

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// twoShards are management clusters with 71 clusters and one.
func twoShards() []*csv1.ProvisionShard {
	return []*csv1.ProvisionShard{{Name: "mgmt-1", Clusters: 71}, {Name: "mgmt-2", Clusters: 1}}
}

func concerns() []adminv1.ConcernGroup {
	return []adminv1.ConcernGroup{
		{Layer: "control-plane", State: "EtcdWaitingForQuorum", ProvisionShard: "mgmt-1", Version: "4.20.16", Clusters: 8, OldestSince: ago(40 * time.Minute)},
		{Layer: "node-pool", State: "WaitingForNodes", ProvisionShard: "mgmt-2", Version: "4.20.16", Clusters: 1, OldestSince: ago(5 * time.Minute)},
		{Layer: "deletion", State: "namespaces", ProvisionShard: "mgmt-1", Version: "4.20.16", Clusters: 1, OldestSince: ago(time.Minute)},
		{Layer: "control-plane", State: "EtcdWaitingForQuorum", ProvisionShard: "mgmt-2", Version: "4.21.4", Clusters: 1, OldestSince: ago(20 * time.Minute)},
	}
}

// TestRegionSituations compares the explanations of a region with their expected texts.
func TestRegionSituations(t *testing.T) {
	for name, f := range map[string]RegionFacts{
		"region-ready":      {Components: regionWith("", ""), Shards: twoShards()},
		"region-waiting":    {Components: regionWith("", ""), Shards: twoShards(), Concerns: concerns()},
		"region-agent-away": {Components: regionWith(adminv1.ComponentAgent, adminv1.ComponentUnresponsive), Shards: twoShards(), Concerns: concerns()[:1]},
		"region-postgresql-away": {Components: regionWith(adminv1.ComponentPostgreSQL, adminv1.ComponentUnreachable, adminv1.ComponentClusterService, adminv1.ComponentMaestroServer, adminv1.ComponentBackend),
			Unavailable: map[string]string{adminv1.LayerClusterService: "It did not respond in time."}},
	} {
		f.Time = now
		got := Region(f).Text()
		path := filepath.Join(golden, name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: -want +got (rewrite with go test -update):\n%s", name, diff)
		}
	}
}

// TestRegionNamesEveryOutage checks that the first item is the outage, with the clusters that it affects, and that no party but an
// SRE must act on an effect of it.
func TestRegionNamesEveryOutage(t *testing.T) {
	for _, layer := range layers.Layers() {
		e := Region(RegionFacts{Time: now, Components: regionWith(layer, adminv1.ComponentUnresponsive), Shards: twoShards(), Concerns: concerns()})
		if first := e.Items[0]; first.Code != adminv1.ExplanationLayerAway || first.Layer != layer || first.Responsible != adminv1.PartySRE || !first.Since.Equal(ago(4*time.Minute)) {
			t.Errorf("%s: %+v", layer, first)
		}
		for _, item := range e.Items[1:] {
			if item.Code != adminv1.ExplanationClustersWaiting || item.Responsible != adminv1.PartyService {
				t.Errorf("%s: %+v", layer, item)
			}
		}
		if e.Clusters != 72 || e.NotReady != 11 {
			t.Errorf("%d clusters, %d not ready", e.Clusters, e.NotReady)
		}
	}
}

// TestRegionKnowsSilentAgents checks that an agent which only Cluster Service reports as silent is an outage, unless something that it
// needs is away.
func TestRegionKnowsSilentAgents(t *testing.T) {
	silent := twoShards()
	silent[1].AgentSilent, silent[1].UnansweredSince = true, stamp(time.Minute)
	e := Region(RegionFacts{Time: now, Shards: silent})
	if first := e.Items[0]; first.Layer != adminv1.ComponentAgent || first.Subject != "mgmt-2" || len(e.Items) != 1 {
		t.Errorf("%+v", e.Items)
	}
	e = Region(RegionFacts{Time: now, Shards: silent, Components: regionWith(adminv1.ComponentMQTTBroker, adminv1.ComponentUnreachable)})
	if first := e.Items[0]; first.Layer != adminv1.ComponentMQTTBroker || slices.ContainsFunc(e.Items, func(i adminv1.ExplanationItem) bool { return i.Layer == adminv1.ComponentAgent }) {
		t.Errorf("%+v", e.Items)
	}
}
