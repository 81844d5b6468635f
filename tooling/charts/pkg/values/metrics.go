package values

import "github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"

// Metrics describes what collects the metrics of the programs of a cluster.
type Metrics struct {
	// Namespace has the pods of the collector. They may connect to the port for operations.
	Namespace string `json:"namespace"`
	// Group is the API group of the PodMonitors that the collector follows.
	Group string `json:"group"`
}

// metrics returns the collector of the program's cluster: the metrics add-on of AKS, or a Prometheus of the Prometheus operator. The add-on
// ignores the PodMonitors of the operator, and installs the definition of its own.
func (c *computation) metrics() Metrics {
	if c.platform() == aks {
		return Metrics{Namespace: workload.AddOnNamespace, Group: "azmonitoring.coreos.com"}
	}
	return Metrics{Namespace: workload.MonitoringNamespace, Group: "monitoring.coreos.com"}
}

// metricsSchema allows what metrics returns.
func metricsSchema() object {
	return closed(object{"namespace": text(namePattern), "group": object{"enum": []string{"azmonitoring.coreos.com", "monitoring.coreos.com"}}})
}
