//go:build nightly

// The published work agent compiles for more than a minute of CPU time, so only `make nightly` and `make bench` build the tests with it, with the
// tag nightly.

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
	"github.com/openshift/library-go/pkg/operator/events"
	utilclock "k8s.io/utils/clock"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/common/options"
	"open-cluster-management.io/ocm/pkg/features"
	"open-cluster-management.io/ocm/pkg/work/spoke"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

// startPublishedAgent starts the published work agent.
func (r *region) startPublishedAgent(consumer string) *maestrotest.Process {
	r.t.Helper()
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	config := filepath.Join(r.Dir, consumer, "mqtt.yaml")
	text := fmt.Sprintf(`brokerHost: %s
caFile: %[2]s/ca.crt
clientCertFile: %[2]s/tls.crt
clientKeyFile: %[2]s/tls.key
topics:
  sourceEvents: sources/maestro/consumers/%[3]s/sourceevents
  agentEvents: sources/maestro/consumers/%[3]s/agentevents
`, r.BrokerAddress, filepath.Join(r.Dir, consumer), consumer)
	must.Do(r.t, os.WriteFile(config, []byte(text), 0o600))
	// Like the program of the work agent. Our agent adds the same feature gates, which is not an error.
	must.Do(r.t, features.SpokeMutableFeatureGate.Add(ocmfeature.DefaultSpokeWorkFeatureGates))
	common := options.NewAgentOptions()
	common.AgentID, common.SpokeClusterName = consumer, consumer
	o := spoke.NewWorkloadAgentOptions()
	o.WorkloadSourceDriver, o.WorkloadSourceConfig = "mqtt", config
	o.CloudEventsClientID, o.CloudEventsClientCodecs = consumer+"-agent", []string{"manifestbundle"}
	o.StatusSyncInterval = time.Second
	o.AppliedManifestWorkEvictionGracePeriod = 876000 * time.Hour
	kube := cluster(r.t)
	return r.Run("published agent "+consumer, func(ctx context.Context) error {
		return spoke.NewWorkAgentConfig(common, o).RunWorkloadAgent(ctx, &controllercmd.ControllerContext{
			KubeConfig: kube, EventRecorder: events.NewInMemoryRecorder(consumer, utilclock.RealClock{}),
		})
	})
}

// TestPublishedAgent replaces our agent with the published one and back.
func TestPublishedAgent(t *testing.T) {
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	published := r.startPublishedAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()

	works := make([]bundle, 20)
	for i := range works {
		works[i] = newBundle(consumer, "one")
		cs.must("create", works[i])
	}
	for _, b := range works {
		cs.untilFedBack(b.ID, 1, "one")
	}
	cs.must("delete", works[0])
	cs.untilDeleted(works[0].ID)
	r.untilGone(works[0].configMapName())

	// Our agent takes over and finds the applied objects.
	published.Stop()
	r.startAgent(consumer)
	for _, b := range works[1:] {
		cs.must("update", b.with("two"))
	}
	for _, b := range works[1:] {
		cs.untilFedBack(b.ID, 2, "two")
	}
	for _, b := range works[1:] {
		cs.must("delete", b)
	}
	for _, b := range works[1:] {
		cs.untilDeleted(b.ID)
		r.untilGone(b.configMapName())
	}
}
