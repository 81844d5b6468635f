package layers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// answers holds the error with which each component answers. It is safe for concurrent use.
type answers struct {
	mu sync.Mutex
	by map[string]error
}

// answering returns the answers of components by name. The others answer that they are ready.
func answering(by map[string]error) *answers {
	a := &answers{by: map[string]error{}}
	maps.Copy(a.by, by)
	return a
}

func (a *answers) set(name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[name] = err
}

func (a *answers) get(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[name]
}

var errHangs = errors.New("hangs")

func (a *answers) ask(name string) Question {
	return func(ctx context.Context) error {
		err := a.get(name)
		if errors.Is(err, errHangs) {
			<-ctx.Done()
			return ctx.Err()
		}
		return err
	}
}

// monitorOf returns a Monitor of the components that admin uses itself and of others, given as name and layer.
func monitorOf(t *testing.T, a *answers, others ...adminv1.Component) *Monitor {
	t.Helper()
	m, err := New(Options{Own: Own{CosmosDB: a.ask(cosmosDB), ClusterService: a.ask(clusterService), MaestroServer: a.ask(maestroServer)},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range others {
		m.probes = append(m.probes, probe{c, a.ask(c.Name)})
	}
	return m
}

func find(components []adminv1.Component, layer string) adminv1.Component {
	if i := slices.IndexFunc(components, func(c adminv1.Component) bool { return c.Layer == layer }); i >= 0 {
		return components[i]
	}
	return adminv1.Component{}
}

// TestMonitorRemembersWhenComponentsWereReady checks the times of a component that stops to respond and returns, and that a
// round takes no longer than the deadline. It runs on virtual time.
func TestMonitorRemembersWhenComponentsWereReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answering(map[string]error{maestroServer: errHangs})
		m := monitorOf(t, a)
		start := time.Now().UTC()
		at := func(d time.Duration) time.Time { return start.Add(d) }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		synctest.Wait()

		time.Sleep(time.Second) // the first round is still running: the Maestro server hangs
		never := find(m.Check(ctx), adminv1.ComponentMaestroServer)
		if got := time.Since(start); got != Deadline {
			t.Errorf("the round took %s, want %s", got, Deadline)
		}
		if never.State != adminv1.ComponentUnresponsive || !never.Since.IsZero() || !never.LastReady.IsZero() {
			t.Errorf("a component that was never ready: %+v", never)
		}
		a.set(maestroServer, nil)
		a.set(cosmosDB, errHangs)
		time.Sleep(time.Minute)
		got := find(m.Check(ctx), adminv1.ComponentCosmosDB)
		want := adminv1.Component{Name: cosmosDB, Layer: adminv1.ComponentCosmosDB, State: adminv1.ComponentUnresponsive, Message: "no response within 1.5s",
			Time: got.Time, Since: at(Deadline + period), LastReady: at(0)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		a.set(cosmosDB, errors.New("forbidden"))
		if changed := find(m.Check(ctx), adminv1.ComponentCosmosDB); changed.State != adminv1.ComponentNotReady || !changed.Since.Equal(want.Since) {
			t.Errorf("another fault: %+v, want the same beginning", changed)
		}
		a.set(cosmosDB, nil)
		if settling := find(m.Check(ctx), adminv1.ComponentCosmosDB); settling.State != adminv1.ComponentNotReady || !settling.Since.Equal(want.Since) {
			t.Errorf("ready for a moment: %+v, want the same beginning", settling)
		}
		// A component that terminates repeatedly is away since the first time.
		a.set(cosmosDB, errors.New("no connection"))
		m.Check(ctx)
		a.set(cosmosDB, nil)
		time.Sleep(settled - time.Second)
		if again := find(m.Check(ctx), adminv1.ComponentCosmosDB); !again.Away() || !again.Since.Equal(want.Since) {
			t.Errorf("ready for a moment again: %+v, want the same beginning", again)
		}
		time.Sleep(2 * settled)
		if back := find(m.Check(ctx), adminv1.ComponentCosmosDB); back.Away() || !back.Since.IsZero() || !back.LastReady.Equal(back.Time) {
			t.Errorf("ready again: %+v", back)
		}
		stop()
		<-ended
	})
}

// TestMonitorBelievesDependents checks components that admin cannot ask itself, and a store whose disk is full but which answers.
func TestMonitorBelievesDependents(t *testing.T) {
	service := adminv1.Component{Name: "maestro-server", Layer: adminv1.ComponentMaestroServer}
	store := adminv1.Component{Name: "postgres", Layer: adminv1.ComponentPostgreSQL}
	agent := adminv1.Component{Name: "mgmt-1-maestro-agent", Layer: adminv1.ComponentAgent, ProvisionShard: "mgmt-1"}
	a := answering(map[string]error{
		service.Name: &notReadyError{text: "broker", reasons: map[string]string{"mqtt": "connection lost", "postgresql": "could not extend file: No space left on device"}},
		agent.Name:   &notReadyError{text: "API server", reasons: map[string]string{"cluster": "timeout", "something new": "unknown"}},
	})
	found := monitorOf(t, a, service, store, agent).Check(t.Context())
	for layer, want := range map[string]adminv1.Component{
		adminv1.ComponentMQTTBroker:    {State: adminv1.ComponentNotReady, ReportedBy: service.Name},
		adminv1.ComponentPostgreSQL:    {State: adminv1.ComponentDiskFull, ReportedBy: service.Name},
		adminv1.ComponentManagementAPI: {State: adminv1.ComponentNotReady, ReportedBy: agent.Name, ProvisionShard: "mgmt-1"},
	} {
		if got := find(found, layer); got.State != want.State || got.ReportedBy != want.ReportedBy || got.ProvisionShard != want.ProvisionShard {
			t.Errorf("%s: %+v", layer, got)
		}
	}
	if len(found) != 3+3+2 {
		t.Errorf("%d components: %+v", len(found), found)
	}
}

// TestOutagesSeparateCauseAndEffect checks which components are outages, in order, with their dependents.
func TestOutagesSeparateCauseAndEffect(t *testing.T) {
	away := func(layer, shard string) adminv1.Component {
		return adminv1.Component{Layer: layer, ProvisionShard: shard, State: adminv1.ComponentNotReady}
	}
	hung := away(adminv1.ComponentPostgreSQL, "")
	hung.State = adminv1.ComponentUnresponsive
	outages := Outages([]adminv1.Component{
		hung,
		away(adminv1.ComponentBackend, ""), away(adminv1.ComponentClusterService, ""), away(adminv1.ComponentPostgreSQL, ""), away(adminv1.ComponentAgent, "mgmt-2"),
		away(adminv1.ComponentManagementAPI, "mgmt-1"), away(adminv1.ComponentHyperShift, "mgmt-1"), {Layer: adminv1.ComponentCosmosDB, State: adminv1.ComponentReady},
	})
	var got []string
	for _, o := range outages {
		line := fmt.Sprintf("%s %s %d:", o.Layer, o.ProvisionShard, 1+len(o.Also))
		for _, d := range o.Dependents {
			line += " " + d.Layer
		}
		got = append(got, line)
	}
	want := []string{"postgresql  2: cluster-service backend", "management-api-server mgmt-1 1: hypershift", "maestro-agent mgmt-2 1:"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestLayersAreOrderedByNeed checks that no layer needs itself or a later one, so that the cause of an outage comes first.
func TestLayersAreOrderedByNeed(t *testing.T) {
	for i, layer := range order {
		for _, later := range order[i:] {
			if Needs(layer, later) {
				t.Errorf("%s needs %s", layer, later)
			}
		}
	}
	if len(needs) > len(order) {
		t.Errorf("order lacks a layer of needs")
	}
}
