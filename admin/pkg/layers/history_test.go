package layers

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

var errAway = errors.New("the server is not ready")

// replicaOf returns a replica that shares a history in Cosmos DB. Its components answer as a states.
func replicaOf(t *testing.T, a *answers, db *database.DB) *Monitor {
	t.Helper()
	m, err := New(Options{Own: Own{CosmosDB: a.ask(cosmosDB), ClusterService: a.ask(clusterService), MaestroServer: a.ask(maestroServer)},
		History: StoredHistory{db}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.settled = 0
	return m
}

// observe executes one round of Run and returns what explanations show of a layer afterwards.
func (m *Monitor) observe(t *testing.T, layer string) adminv1.Component {
	t.Helper()
	m.Check(t.Context())
	m.share(t.Context())
	return find(m.Check(t.Context()), layer)
}

// TestReplicasShareSinceWhenComponentsAreAway checks that a second replica and a replica after its restart show the beginning of an
// outage that the first replica observed, and that an outage after that has its own beginning.
func TestReplicasShareSinceWhenComponentsAreAway(t *testing.T) {
	db, _ := databasetest.New(t)
	const layer = adminv1.ComponentMaestroServer
	states := answering(nil)
	first, second := replicaOf(t, states, db), replicaOf(t, states, db)
	first.observe(t, layer)
	second.observe(t, layer)

	states.set(maestroServer, errAway)
	began := first.observe(t, layer)
	if began.Since.IsZero() || began.LastReady.IsZero() {
		t.Fatalf("the first replica: %+v", began)
	}
	restarted := replicaOf(t, states, db)
	for name, m := range map[string]*Monitor{"the second replica": second, "a restarted replica": restarted} {
		if got := m.observe(t, layer); !got.Since.Equal(began.Since) || got.LastReady.IsZero() || got.LastReady.After(began.Since) {
			t.Errorf("%s: away since %s, last ready %s; want the same beginning as the first, %s", name, got.Since, got.LastReady, began.Since)
		}
	}

	states.set(maestroServer, nil)
	for _, m := range []*Monitor{restarted, second, first} {
		if got := m.observe(t, layer); got.Away() || !got.Since.IsZero() {
			t.Errorf("ready again: %+v", got)
		}
	}
	states.set(maestroServer, errAway)
	again := second.observe(t, layer)
	if !again.Since.After(began.Since) {
		t.Errorf("the next outage began at %s, that before at %s", again.Since, began.Since)
	}
	if got := replicaOf(t, states, db).observe(t, layer); !got.Since.Equal(again.Since) {
		t.Errorf("a restarted replica shows the beginning %s of the next outage, want %s", got.Since, again.Since)
	}
}

// TestHistoryIsWrittenOnlyAtTransitions checks that rounds without a change neither read nor write.
func TestHistoryIsWrittenOnlyAtTransitions(t *testing.T) {
	db, server := databasetest.New(t)
	states := answering(nil)
	m := replicaOf(t, states, db)
	m.observe(t, adminv1.ComponentCosmosDB)
	states.set(maestroServer, errAway)
	m.observe(t, adminv1.ComponentMaestroServer)
	item, err := db.ComponentAbsences().Get(t.Context(), database.ComponentAbsencesKey())
	if err != nil {
		t.Fatal(err)
	}
	if len(item.Value.Away) != 1 {
		t.Fatalf("stored: %+v", item.Value)
	}
	// Every request to Cosmos DB fails from now on.
	remove := server.InjectFault(t, faults.Rule{Status: http.StatusForbidden})
	defer remove()
	for range 3 {
		m.observe(t, adminv1.ComponentMaestroServer)
	}
	if len(m.unshared) > 0 {
		t.Errorf("the history was used without a transition: %v", m.unshared)
	}
}

// TestTransitionsAreSharedAfterAnOutageOfCosmosDB checks that what could not be stored is stored later.
func TestTransitionsAreSharedAfterAnOutageOfCosmosDB(t *testing.T) {
	db, _ := databasetest.New(t)
	const layer = adminv1.ComponentMaestroServer
	states := answering(nil)
	m := replicaOf(t, states, db)
	m.observe(t, layer)
	states.set(cosmosDB, errAway)
	states.set(maestroServer, errAway)
	began := m.observe(t, layer)
	if item, err := db.ComponentAbsences().Find(t.Context(), database.ComponentAbsencesKey()); err != nil || item != nil {
		t.Fatalf("stored while Cosmos DB is away: %+v, %v", item, err)
	}
	states.set(cosmosDB, nil)
	if got := m.observe(t, layer); !got.Since.Equal(began.Since) {
		t.Errorf("since %s, want %s", got.Since, began.Since)
	}
	item, err := db.ComponentAbsences().Get(t.Context(), database.ComponentAbsencesKey())
	if err != nil {
		t.Fatal(err)
	}
	if !item.Value.Away[maestroServer].Since.Equal(began.Since) || len(item.Value.Away) != 1 {
		t.Errorf("stored: %+v", item.Value)
	}
}

// TestFailedWriteIsRepeated checks that a transition is stored after the next round if its write failed.
func TestFailedWriteIsRepeated(t *testing.T) {
	db, server := databasetest.New(t)
	const layer = adminv1.ComponentMaestroServer
	states := answering(nil)
	m := replicaOf(t, states, db)
	m.observe(t, layer)
	states.set(maestroServer, errAway)
	remove := server.InjectFault(t, faults.Rule{Status: http.StatusForbidden})
	began := m.observe(t, layer)
	remove()
	m.observe(t, layer)
	item, err := db.ComponentAbsences().Get(t.Context(), database.ComponentAbsencesKey())
	if err != nil {
		t.Fatal(err)
	}
	if !item.Value.Away[maestroServer].Since.Equal(began.Since) {
		t.Errorf("stored: %+v", item.Value)
	}
}

// TestConcurrentTransitionsAreAllStored checks the compare-and-swap: replicas that observe different components at the same time.
func TestConcurrentTransitionsAreAllStored(t *testing.T) {
	db, _ := databasetest.New(t)
	both := answering(nil)
	a, b := replicaOf(t, both, db), replicaOf(t, both, db)
	a.observe(t, adminv1.ComponentCosmosDB)
	b.observe(t, adminv1.ComponentCosmosDB)
	done := make(chan struct{})
	one, other := replicaOf(t, answering(map[string]error{maestroServer: errAway}), db), replicaOf(t, answering(map[string]error{clusterService: errAway}), db)
	one.known, other.known = a.known, b.known
	go func() { defer close(done); one.observe(t, adminv1.ComponentMaestroServer) }()
	other.observe(t, adminv1.ComponentClusterService)
	<-done
	item, err := db.ComponentAbsences().Get(t.Context(), database.ComponentAbsencesKey())
	if err != nil {
		t.Fatal(err)
	}
	if len(item.Value.Away) != 2 {
		t.Errorf("stored: %+v", item.Value)
	}
}

// TestStoredAbsencesOfEarlierOutagesAreReplaced checks an absence whose end was not stored: the only replica that had observed it
// terminated.
func TestStoredAbsencesOfEarlierOutagesAreReplaced(t *testing.T) {
	now := time.Now()
	earlier := database.ComponentAbsence{Since: now.Add(-time.Hour)}
	tests := map[string]struct {
		component adminv1.Component
		adopted   bool
		stored    time.Time
	}{
		"observed ready after it":       {adminv1.Component{State: adminv1.ComponentNotReady, Since: now, LastReady: now.Add(-period)}, false, now},
		"not observed ready":            {adminv1.Component{State: adminv1.ComponentNotReady}, true, earlier.Since},
		"observed ready just before it": {adminv1.Component{State: adminv1.ComponentNotReady, Since: earlier.Since.Add(period), LastReady: earlier.Since.Add(time.Second)}, true, earlier.Since},
		"ready":                         {adminv1.Component{State: adminv1.ComponentReady, LastReady: now}, false, time.Time{}},
	}
	for name, tc := range tests {
		away := map[string]database.ComponentAbsence{"a": earlier}
		adopted, write := merge(away, map[string]adminv1.Component{"a": tc.component})
		if _, found := adopted["a"]; found != tc.adopted || write != !tc.stored.Equal(earlier.Since) || !away["a"].Since.Equal(tc.stored) {
			t.Errorf("%s: adopted %v, write %v, stored %+v", name, adopted, write, away)
		}
	}
}
