package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

const (
	// Deadline is the default time in which a component must answer.
	Deadline = 1500 * time.Millisecond
	// period is the time between two rounds of questions while nobody asks for an explanation. It bounds the error of
	// Component.Since.
	period = 5 * time.Second
	// settled is for how long a component that was away must answer that it is ready before it counts as ready. A component that
	// terminates repeatedly is ready between two terminations, and so stays away since the first one.
	settled = 5 * time.Second
)

// The names of the components that admin uses itself, and so asks without configuration.
const (
	cosmosDB       = "cosmos-db"
	clusterService = "cluster-service (gRPC)"
	maestroServer  = "maestro-server (REST)"
)

func isBuiltin(name string) bool {
	return slices.Contains([]string{cosmosDB, clusterService, maestroServer}, name)
}

// Own holds the questions for the components that admin uses itself.
type Own struct{ CosmosDB, ClusterService, MaestroServer Question }

// Monitor observes components. It is safe for concurrent use.
type Monitor struct {
	probes  []probe
	rounds  singleflight.Group
	history History
	metrics *metrics
	log     *slog.Logger
	// deadline is that of the options or the default.
	deadline time.Duration

	mu    sync.Mutex
	known map[string]adminv1.Component
	// settled is the constant of that name; shorter in tests without virtual time.
	settled time.Duration
	// answering is since when components that are away answer that they are ready.
	answering map[string]time.Time
	// unshared are the names of the components whose last transition the history does not have.
	unshared map[string]bool
}

// Options configures a Monitor.
type Options struct {
	// Config lists components besides those that admin uses itself; may be nil.
	Config *Config
	Own    Own
	// History may be nil: then a component is away since this replica first observed it, and a restart loses that time.
	History History
	// Deadline is the time in which a component must answer; 0 means the constant. Tests need more on a busy machine.
	Deadline time.Duration
	// Intercept returns the question for a component of Config, from the one that asks it. It is for tests; nil changes no question.
	Intercept func(target Target, ask Question) Question
	Metrics   prometheus.Registerer
	Log       *slog.Logger
}

// probe is a component with its question.
type probe struct {
	component adminv1.Component
	ask       Question
}

// New returns a Monitor of the components of a configuration and of those that admin uses itself.
func New(options Options) (*Monitor, error) {
	config, own := options.Config, options.Own
	m := &Monitor{deadline: cmp.Or(options.Deadline, Deadline), known: map[string]adminv1.Component{}, settled: settled, answering: map[string]time.Time{}, unshared: map[string]bool{}, history: options.History, log: options.Log, probes: []probe{
		{adminv1.Component{Name: cosmosDB, Layer: adminv1.ComponentCosmosDB}, own.CosmosDB},
		{adminv1.Component{Name: clusterService, Layer: adminv1.ComponentClusterService}, own.ClusterService},
		{adminv1.Component{Name: maestroServer, Layer: adminv1.ComponentMaestroServer}, own.MaestroServer},
	}}
	if config != nil {
		for _, target := range config.Components {
			ask, err := target.question()
			if err != nil {
				return nil, err
			}
			if options.Intercept != nil {
				ask = options.Intercept(target, ask)
			}
			m.probes = append(m.probes, probe{adminv1.Component{Name: target.Name, Layer: target.Layer, ProvisionShard: target.ProvisionShard}, ask})
		}
	}
	m.metrics = newMetrics(options.Metrics)
	return m, nil
}

// Run asks all components every few seconds until ctx ends, and shares with other replicas since when they are away.
func (m *Monitor) Run(ctx context.Context) {
	for {
		m.Check(ctx)
		m.share(ctx)
		if backoff.Sleep(ctx, period) != nil {
			return
		}
	}
}

// Deadline returns the time in which a component must answer.
func (m *Monitor) Deadline() time.Duration { return m.deadline }

// Check asks all components at the same time and returns their states within the deadline. Concurrent calls share their questions.
func (m *Monitor) Check(ctx context.Context) []adminv1.Component {
	answers, _, _ := m.rounds.Do("", func() (any, error) {
		// The answers serve other callers as well, so the end of this caller's request does not end the questions.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.deadline)
		defer cancel()
		return m.round(ctx), nil
	})
	return slices.Clone(answers.([]adminv1.Component))
}

// round asks all components once.
func (m *Monitor) round(ctx context.Context) []adminv1.Component {
	asked := time.Now().UTC()
	answers := make([]error, len(m.probes))
	var wg sync.WaitGroup
	for i, p := range m.probes {
		wg.Go(func() { answers[i] = p.ask(ctx) })
	}
	wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var components []adminv1.Component
	for i, p := range m.probes {
		c := p.component
		c.State, c.Message = Classify(answers[i])
		components = append(components, m.remember(c, asked))
	}
	components = append(components, m.reported(components, answers, asked)...)
	m.metrics.export(components, asked)
	return components
}

// remember completes a component with the times of its earlier states.
func (m *Monitor) remember(c adminv1.Component, asked time.Time) adminv1.Component {
	before, known := m.known[c.Name]
	c.Time, c.Since, c.LastReady = asked, before.Since, before.LastReady
	if c.Away() {
		delete(m.answering, c.Name)
	} else if before.Away() && !before.LastReady.IsZero() { // one that starts for the first time is ready at once
		if _, answers := m.answering[c.Name]; !answers {
			m.answering[c.Name] = asked
		}
		if since := asked.Sub(m.answering[c.Name]); since < m.settled {
			c.State = adminv1.ComponentNotReady
			c.Message = fmt.Sprintf("it has answered that it is ready again for %s, and counts as ready after %s", since.Round(time.Second), m.settled)
		}
	}
	switch {
	case !c.Away():
		c.Since, c.LastReady = time.Time{}, asked
		delete(m.answering, c.Name)
	case known && !before.Away():
		c.Since = asked
	}
	if !known || before.Away() != c.Away() {
		m.unshared[c.Name] = true
	}
	m.known[c.Name] = c
	return c
}

// dependencyLayers maps the names of the services' readiness checks to the layers that they check.
var dependencyLayers = map[string]string{
	"cosmos": adminv1.ComponentCosmosDB, "cosmos-db": adminv1.ComponentCosmosDB,
	"postgres": adminv1.ComponentPostgreSQL, "postgresql": adminv1.ComponentPostgreSQL, "database": adminv1.ComponentPostgreSQL,
	"mqtt": adminv1.ComponentMQTTBroker, "maestro": adminv1.ComponentMaestroServer, "cluster-service": adminv1.ComponentClusterService,
	"cluster": adminv1.ComponentManagementAPI, "management cluster": adminv1.ComponentManagementAPI,
}

// reported returns the components that only others report as not ready, because admin cannot ask them.
func (m *Monitor) reported(asked []adminv1.Component, answers []error, at time.Time) []adminv1.Component {
	var components []adminv1.Component
	for i, reporter := range asked {
		var answered *notReadyError
		if !errors.As(answers[i], &answered) {
			continue
		}
		for dependency, text := range answered.reasons {
			layer, known := dependencyLayers[dependency]
			c := adminv1.Component{Name: layer, Layer: layer, State: adminv1.ComponentNotReady, Message: text, ReportedBy: reporter.Name}
			if layer == adminv1.ComponentManagementAPI {
				c.ProvisionShard = reporter.ProvisionShard
				c.Name = reporter.ProvisionShard + "-" + layer
			}
			same := func(other adminv1.Component) bool {
				return other.Layer == layer && other.ProvisionShard == c.ProvisionShard
			}
			if DiskFull(text) {
				c.State = adminv1.ComponentDiskFull
			}
			if i := slices.IndexFunc(asked, same); i >= 0 && c.State == adminv1.ComponentDiskFull && !asked[i].Away() {
				// A store with a full disk may still answer reads.
				asked[i].State, asked[i].Message, asked[i].ReportedBy, asked[i].Since = c.State, text, reporter.Name, reporter.Since
			}
			if !known || slices.ContainsFunc(asked, same) || slices.ContainsFunc(components, same) {
				continue
			}
			// Without a question of its own, a component that nobody reports is not known to be ready.
			c.Time, c.Since = at, reporter.Since
			components = append(components, c)
		}
	}
	return components
}
