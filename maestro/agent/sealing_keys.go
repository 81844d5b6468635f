package agent

import (
	"bytes"
	"encoding/json"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// sealingKeys exports how many Secrets of works each key has sealed. It is a prometheus.Collector that reads the works at each scrape.
type sealingKeys struct{ works *works }

func (s *sealingKeys) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "maestro_agent_sealed_secrets",
		Help: "Secrets in the works of the agent, without works in deletion, by the ID of the key that sealed them."}, []string{"key"})
}

// Describe implements prometheus.Collector.
func (s *sealingKeys) Describe(descs chan<- *prometheus.Desc) { s.gauge().Describe(descs) }

// Collect implements prometheus.Collector.
func (s *sealingKeys) Collect(metrics chan<- prometheus.Metric) {
	gauge := s.gauge()
	for _, work := range s.works.list() {
		if !work.DeletionTimestamp.IsZero() {
			continue // its Secrets are not opened again
		}
		for _, manifest := range work.Spec.Workload.Manifests {
			if key := sealingKeyOf(manifest.Raw); key != "" {
				gauge.WithLabelValues(key).Inc()
			}
		}
	}
	gauge.Collect(metrics)
}

// sealingKeyOf returns the ID of the key that sealed the values of a manifest, or "" if no key did. Few manifests are decoded.
func sealingKeyOf(manifest []byte) string {
	if !bytes.Contains(manifest, []byte(seal.SecretAnnotation)) {
		return ""
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(manifest, &object); err != nil || object.Kind != "Secret" {
		return ""
	}
	return object.Annotations[seal.SecretAnnotation]
}
