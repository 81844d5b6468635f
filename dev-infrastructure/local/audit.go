package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
)

// AuditFolders are the folders of a region's audit, for a verification.
type AuditFolders struct {
	// Sink has the exported chains, Witness the latest checkpoints, and Keys the public keys of the services.
	Sink, Witness, Keys string
	// Queues are the folders of the writers' queues.
	Queues []string
}

// AuditFoldersOf returns the folders of the audit of the region in a state folder.
func AuditFoldersOf(stateDir string) AuditFolders {
	dir := filepath.Join(stateDir, "audit")
	folders := AuditFolders{Sink: filepath.Join(dir, "sink"), Witness: filepath.Join(dir, "witness"), Keys: filepath.Join(dir, "keys")}
	for _, service := range auditedServices() {
		folders.Queues = append(folders.Queues, filepath.Join(dir, "queue", service))
	}
	// Each management cluster has a queue.
	queues, err := os.ReadDir(filepath.Join(dir, "queue"))
	if err != nil {
		return folders // a region that has never started has no queues
	}
	for _, queue := range queues {
		if path := filepath.Join(dir, "queue", queue.Name()); !slices.Contains(folders.Queues, path) {
			folders.Queues = append(folders.Queues, path)
		}
	}
	return folders
}

// auditedServices are the services that write audit records.
func auditedServices() []string {
	return []string{"admin", "backend", "cluster-service", "maestro-server", "frontend", "eventgrid-emulator", "gateway-access"}
}

func (r *Region) auditKeyFile(service string) string {
	return r.state.path("secrets", "audit-"+service+".key")
}

// auditPublicKeysFile returns the file of the public keys of a service.
func (r *Region) auditPublicKeysFile(service string) string {
	return filepath.Join(AuditFoldersOf(r.state.dir).Keys, service+".pem")
}

// createAudit creates the folders of the audit and the signing keys of the services, unless they exist, and writes the audit policy of
// the management clusters.
func (r *Region) createAudit() error {
	folders := AuditFoldersOf(r.state.dir)
	dirs := append([]string{folders.Sink, folders.Witness, folders.Keys}, folders.Queues...)
	for _, m := range r.clusters {
		dirs = append(dirs, r.auditLogDir(m.name), r.managementQueueDir(m.name))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the folders of the audit: %w", err)
		}
	}
	if err := replaceFile(r.auditPolicyFile(), managementaudit.Policy, 0o644); err != nil {
		return err
	}
	for _, service := range append(auditedServices(), managementaudit.Service) {
		if err := audit.CreatePair(r.auditKeyFile(service), r.auditPublicKeysFile(service)); err != nil {
			return fmt.Errorf("creating the audit key of %s: %w", service, err)
		}
	}
	return nil
}

// auditPolicyFile returns the file of the audit policy of all management clusters, and auditLogDir the folder of the audit log of one.
func (r *Region) auditPolicyFile() string { return r.state.path("audit", "policy.yaml") }

func (r *Region) auditLogDir(managementCluster string) string {
	return r.state.path("management", managementCluster, "audit")
}

// managementQueueDir returns the folder of the queue of a management cluster's audit records.
func (r *Region) managementQueueDir(managementCluster string) string {
	return r.state.path("audit", "queue", managementCluster+"-"+managementaudit.Service)
}

// managementAudit returns the process that copies the audit events of a management cluster. It needs no other process: it follows the
// log, which may be empty.
func (r *Region) managementAudit(m *managementCluster) supervisor.Spec {
	arguments := r.auditFlagsOf(managementaudit.Service, r.managementQueueDir(m.name))
	return r.ours(m.auditName(), "management-audit", append(arguments,
		"--management-cluster="+m.name,
		"--log-dir="+r.auditLogDir(m.name),
		"--position-file="+filepath.Join(r.state.path("management", m.name), "audit-position.json"),
	)...)
}

// auditFlags returns the flags of a service that writes audit records.
func (r *Region) auditFlags(service string) []string {
	return r.auditFlagsOf(service, r.state.path("audit", "queue", service))
}

func (r *Region) auditFlagsOf(service, queue string) []string {
	return []string{
		"--audit-queue-dir=" + queue,
		"--audit-sink-dir=" + r.state.path("audit", "sink"),
		"--audit-witness-dir=" + r.state.path("audit", "witness"),
		"--audit-signing-key-file=" + r.auditKeyFile(service),
	}
}
