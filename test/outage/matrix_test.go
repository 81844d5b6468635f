package outage

import (
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// omitted returns why a fault of a component is not tested; empty if it is.
func omitted(c fault.Component, k fault.Kind) string {
	switch {
	case k != fault.DiskFull || c.Disk != "":
		return ""
	case c.Layer == adminv1.ComponentManagementAPI || c.Layer == adminv1.ComponentHostedAPI:
		return "its data is in etcd"
	case c.Layer == adminv1.ComponentBackend:
		return "its data is in Cosmos DB"
	case c.Layer == adminv1.ComponentClusterService || c.Layer == adminv1.ComponentMaestroServer:
		return "its data is in PostgreSQL"
	case c.Layer == adminv1.ComponentMQTTBroker:
		return "the broker keeps sessions in memory, and Event Grid is a service of Azure"
	}
	return "it stores nothing outside the management cluster"
}

// The operations in flight. A cluster that keeps its name between outages has that of its operation.
const (
	quiet   = "quiet"
	create  = "create"
	update  = "update"
	scaling = "scale"
	remove  = "delete"
	// theRegion stands for the explanation of the region, and theMetric for the metric of the alert ComponentAway.
	theRegion = "region"
	theMetric = "alert"
)

var operations = []string{theMetric, theRegion, quiet, create, update, scaling, remove}

// omittedFor returns why an operation is not tested while the component is away; empty if it is.
func omittedFor(c fault.Component, operation string) string {
	if c.Layer != adminv1.ComponentHostedAPI {
		return ""
	}
	switch operation {
	case theRegion, theMetric:
		return "admin asks a hosted API server only for the explanation of its cluster, because there are thousands"
	case create:
		return "a cluster that is being created has no API server yet"
	case remove:
		return "the API server of a cluster that is being deleted is expected to go away"
	}
	return ""
}

// results are the results of all cells. They are safe for concurrent use.
type results struct {
	mu   sync.Mutex
	rows []row
}

// row is one cell of the matrix.
type row struct {
	layer, fault, operation, result string
	took                            time.Duration
}

func (r *results) add(c fault.Component, k fault.Kind, operation, result string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{c.Layer, string(k), operation, result, took})
}

func (r *results) omit(c fault.Component, k fault.Kind, reason string) {
	r.add(c, k, "all", "not tested: "+reason, 0)
}

// tested returns the number of cells that were tested.
func (r *results) tested() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	tested := 0
	for _, row := range r.rows {
		if row.took > 0 {
			tested++
		}
	}
	return tested
}

// table returns one line for each cell.
func (r *results) table() string {
	tested := r.tested()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := &strings.Builder{}
	w := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "component\tfault\toperation\texplanation\tafter")
	var longest time.Duration
	for _, row := range r.rows {
		after := ""
		if row.took > 0 {
			after = row.took.Round(time.Millisecond).String()
		}
		longest = max(longest, row.took)
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.layer, row.fault, row.operation, row.result, after)
	}
	_, _ = fmt.Fprintf(w, "%d cells tested, the slowest explanation after %s\n", tested, longest.Round(time.Millisecond))
	_ = w.Flush()
	return text.String()
}
