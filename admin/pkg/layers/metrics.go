package layers

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// metrics export the states of the components as of the last round. It is safe for concurrent use.
type metrics struct {
	up, outages *prometheus.GaugeVec
	checked     prometheus.Gauge

	mu sync.Mutex
	// components and layers are those with a series.
	components map[componentLabels]bool
	layers     map[layerLabels]bool
}

// componentLabels and layerLabels are the values of the labels of a series.
type (
	componentLabels struct{ component, layer, shard string }
	layerLabels     struct{ layer, shard string }
)

func (l componentLabels) values() []string { return []string{l.component, l.layer, l.shard} }
func (l layerLabels) values() []string     { return []string{l.layer, l.shard} }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "admin_component_up", Help: "1 if the component answered that it is ready when this replica asked last, else 0. The label shard is empty for components of the region.",
		}, []string{"component", "layer", "shard"}),
		outages: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "admin_layer_outage", Help: "1 if a component of the layer, of the region or of one management cluster (shard), is away although all layers that it needs are ready, else 0.",
		}, []string{"layer", "shard"}),
		checked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "admin_components_last_check_seconds", Help: "Time at which this replica last asked all components whether they are ready, as Unix time.",
		}),
		components: map[componentLabels]bool{}, layers: map[layerLabels]bool{},
	}
	registry.MustRegister(m.up, m.outages, m.checked)
	return m
}

// export replaces the exported states by those of a round that began at a time. It removes the series of components that no other
// component reports any more.
func (m *metrics) export(components []adminv1.Component, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	away := map[layerLabels]bool{}
	for _, outage := range Outages(components) {
		away[layerLabels{outage.Layer, outage.ProvisionShard}] = true
	}
	observed, layers := map[componentLabels]bool{}, map[layerLabels]bool{}
	for _, c := range components {
		labels, layer := componentLabels{c.Name, c.Layer, c.ProvisionShard}, layerLabels{c.Layer, c.ProvisionShard}
		observed[labels], layers[layer] = true, true
		m.up.WithLabelValues(labels.values()...).Set(number(!c.Away()))
		m.outages.WithLabelValues(layer.values()...).Set(number(away[layer]))
	}
	for labels := range m.components {
		if !observed[labels] {
			m.up.DeleteLabelValues(labels.values()...)
		}
	}
	for labels := range m.layers {
		if !layers[labels] {
			m.outages.DeleteLabelValues(labels.values()...)
		}
	}
	m.components, m.layers = observed, layers
	m.checked.Set(float64(began.UnixMilli()) / 1000)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
