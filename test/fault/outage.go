package fault

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// Component is a component of the region that clusters depend on, and what must name it while it is away.
type Component struct {
	Name string
	// Layer is its name in explanations, in the metric of outages and in the alert ComponentAway.
	Layer string
	// Process is its name in the supervisor. It is empty for the API servers of hosted clusters, which the HyperShift local runtime
	// supervises.
	Process string
	// OfShard is true if a cluster depends on it only after its placement on the management cluster.
	OfShard bool
	// Stored is true if requests of customers fail while it is away.
	Stored bool
	// Disk is the folder below the state folder of the region that gets a disk of its own with DiskSize bytes; empty without data. full
	// are the states that explanations can show when the disk is full: a database rejects writes, or terminates.
	Disk     string
	DiskSize int64
	full     []adminv1.ComponentState
	// Alerts fire beside ComponentAway while the process is away, and Silent must not be sent, because ComponentAway is their cause.
	Alerts, Silent []Alert
	// runbook is the page of docs/operators about lost data; empty without data.
	runbook string
}

// PostgresDisk is the folder of the disk of PostgreSQL.
const PostgresDisk = "postgres-disk"

var (
	rejectsWrites = []adminv1.ComponentState{adminv1.ComponentDiskFull}
	// A database that terminates because its disk is full is restarted, and terminates again.
	terminates = []adminv1.ComponentState{adminv1.ComponentUnreachable, adminv1.ComponentNotReady}
)

// Components returns all components.
func Components() []Component {
	return []Component{
		{Name: "Cosmos DB", Layer: adminv1.ComponentCosmosDB, Process: "cosmos-emulator", Stored: true, Disk: "cosmos", DiskSize: 64 << 20, full: rejectsWrites,
			Alerts: []Alert{{Name: "FrontendNotReady"}, {Name: "SubscriptionsWithoutBackend"}, {Name: "ClustersWithoutMonitor"}}},
		{Name: "PostgreSQL", Layer: adminv1.ComponentPostgreSQL, Process: "postgres", Disk: PostgresDisk, DiskSize: 256 << 20, full: slices.Concat(rejectsWrites, terminates),
			runbook: "postgresql-away.md"},
		{Name: "etcd", Layer: adminv1.ComponentEtcd, Process: "etcd", Disk: "etcd", DiskSize: 256 << 20, full: terminates, runbook: "etcd-away.md"},
		{Name: "the broker", Layer: adminv1.ComponentMQTTBroker, Process: "eventgrid-emulator"},
		{Name: "the Maestro server", Layer: adminv1.ComponentMaestroServer, Process: "maestro-server",
			Silent: []Alert{{"TargetDown", map[string]string{"job": "maestro-server"}}}},
		{Name: "Cluster Service", Layer: adminv1.ComponentClusterService, Process: "cluster-service"},
		{Name: "the backend", Layer: adminv1.ComponentBackend, Process: "backend"},
		{Name: "the agent of a management cluster", Layer: adminv1.ComponentAgent, Process: "mgmt-1-maestro-agent", OfShard: true,
			Silent: []Alert{{Name: "AgentSilent"}, {Name: "InsideProberSilent"}}},
		{Name: "the HyperShift runtime", Layer: adminv1.ComponentHyperShift, Process: "mgmt-1-hypershift-runtime", OfShard: true},
		{Name: "the API server of a management cluster", Layer: adminv1.ComponentManagementAPI, Process: "mgmt-1-kube-apiserver", OfShard: true},
		{Name: "the API servers of customers", Layer: adminv1.ComponentHostedAPI, OfShard: true},
	}
}

// ComponentOf returns the component of a layer.
func ComponentOf(layer string) Component {
	all := Components()
	return all[slices.IndexFunc(all, func(c Component) bool { return c.Layer == layer })]
}

// Away returns the alert that names the component while it is away.
func (c Component) Away() Alert {
	labels := map[string]string{"layer": c.Layer}
	if c.OfShard {
		labels["shard"] = "mgmt-1"
	}
	return Alert{"ComponentAway", labels}
}

// Kind is a way in which a component is away.
type Kind string

const (
	// Hung: SIGSTOP stops the process. The kernel still accepts connections.
	Hung Kind = "hung"
	// Terminated: the process was killed and is not restarted. Connections are refused.
	Terminated Kind = "terminated"
	// DiskFull: nothing can be written to the disk of the component.
	DiskFull Kind = "disk full"
	// DataLost: the process cannot start, because its data is missing or damaged.
	DataLost Kind = "data lost"
)

// Runbook returns the page of docs/operators for a component that is away.
func (c Component) Runbook(k Kind) string {
	switch k {
	case Hung:
		return "hung-process.md"
	case DiskFull:
		return "disk-full.md"
	case DataLost:
		return c.runbook
	}
	return "component-away.md"
}

// States returns the states that explanations can show for a component that is away.
func (c Component) States(k Kind) []adminv1.ComponentState {
	switch k {
	case Hung:
		return []adminv1.ComponentState{adminv1.ComponentUnresponsive}
	case Terminated:
		return []adminv1.ComponentState{adminv1.ComponentUnreachable}
	default:
		return c.full
	}
}

// Inject makes a component unavailable. Of the API servers of customers, these are those of clusters. The component can recover once end was called.
func (r *Region) Inject(t *testing.T, ctx context.Context, c Component, k Kind, clusters ...adminv1.Cluster) (end func()) {
	t.Helper()
	switch {
	case k == DiskFull:
		return FillDisk(t, filepath.Join(r.Dir, c.Disk))
	case c.Process == "" && k == Hung:
		return r.breakAPIs(t, clusters, (*Server).Stop)
	case c.Process == "":
		return r.KillAPIs(t, clusters...)
	case k == Hung:
		must.Do(t, r.Signal(c.Process, syscall.SIGSTOP))
		return func() { _ = r.Signal(c.Process, syscall.SIGCONT) } // the supervisor may have killed it
	default:
		return r.KillProcesses(t, ctx, c.Process)
	}
}

// FillDisk fills the disk of a folder until the returned function is called.
func FillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	filler := smalldisk.Fill(t, dir)
	return end(t, func() error { return os.Remove(filler) })
}
