package outage

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// component is a component of the region that clusters depend on.
type component struct {
	layer string
	// process is its name in the supervisor. It is empty for the API servers of hosted clusters, which the HyperShift local runtime
	// supervises.
	process string
	// ofShard is true if a cluster depends on it only after its placement on the management cluster.
	ofShard bool
	// stored is true if requests of customers fail while it is away.
	stored bool
	// disk is the folder below the state folder of the region that gets a disk of its own with diskSize bytes; empty without data. full
	// are the states that explanations can show when the disk is full: a database rejects writes, or terminates.
	disk     string
	diskSize int64
	full     []adminv1.ComponentState
}

const postgresDisk = "postgres-disk"

var (
	rejectsWrites = []adminv1.ComponentState{adminv1.ComponentDiskFull}
	// A database that terminates because its disk is full is restarted, and terminates again.
	terminates = []adminv1.ComponentState{adminv1.ComponentUnreachable, adminv1.ComponentNotReady}
)

var components = []component{
	{layer: adminv1.ComponentCosmosDB, process: "cosmos-emulator", stored: true, disk: "cosmos", diskSize: 64 << 20, full: rejectsWrites},
	{layer: adminv1.ComponentPostgreSQL, process: "postgres", disk: postgresDisk, diskSize: 256 << 20, full: slices.Concat(rejectsWrites, terminates)},
	{layer: adminv1.ComponentEtcd, process: "etcd", disk: "etcd", diskSize: 256 << 20, full: terminates},
	{layer: adminv1.ComponentMQTTBroker, process: "eventgrid-emulator"},
	{layer: adminv1.ComponentMaestroServer, process: "maestro-server"},
	{layer: adminv1.ComponentClusterService, process: "cluster-service"},
	{layer: adminv1.ComponentBackend, process: "backend"},
	{layer: adminv1.ComponentAgent, process: "mgmt-1-maestro-agent", ofShard: true},
	{layer: adminv1.ComponentHyperShift, process: "mgmt-1-hypershift-runtime", ofShard: true},
	{layer: adminv1.ComponentManagementAPI, process: "mgmt-1-kube-apiserver", ofShard: true},
	{layer: adminv1.ComponentHostedAPI, ofShard: true},
}

// fault is a way in which a component is away.
type fault string

const (
	// hung: SIGSTOP stops the process. The kernel still accepts connections.
	hung fault = "hung"
	// terminated: the process was killed and is not restarted. Connections are refused.
	terminated fault = "terminated"
	// diskFull: nothing can be written to the disk of the component.
	diskFull fault = "disk full"
)

// states returns the possible states of a component with a fault in explanations.
func (f fault) states(c component) []adminv1.ComponentState {
	switch f {
	case hung:
		return []adminv1.ComponentState{adminv1.ComponentUnresponsive}
	case terminated:
		return []adminv1.ComponentState{adminv1.ComponentUnreachable}
	default:
		return c.full
	}
}

// omitted returns why a fault of a component is not tested; empty if it is.
func (c component) omitted(f fault) string {
	switch {
	case f != diskFull || c.disk != "":
		return ""
	case c.layer == adminv1.ComponentManagementAPI || c.layer == adminv1.ComponentHostedAPI:
		return "its data is in etcd"
	case c.layer == adminv1.ComponentBackend:
		return "its data is in Cosmos DB"
	case c.layer == adminv1.ComponentClusterService || c.layer == adminv1.ComponentMaestroServer:
		return "its data is in PostgreSQL"
	case c.layer == adminv1.ComponentMQTTBroker:
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
func (c component) omittedFor(operation string) string {
	if c.layer != adminv1.ComponentHostedAPI {
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

func (r *results) add(c component, f fault, operation, result string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{c.layer, string(f), operation, result, took})
}

func (r *results) omit(c component, f fault, reason string) {
	r.add(c, f, "all", "not tested: "+reason, 0)
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
