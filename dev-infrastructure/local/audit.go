package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/audit"
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
	return folders
}

// auditedServices are the services that write audit records.
func auditedServices() []string { return []string{"admin", "backend", "cluster-service"} }

func (r *Region) auditKeyFile(service string) string {
	return r.state.path("secrets", "audit-"+service+".key")
}

// createAudit creates the folders of the audit and the signing keys of the services, unless they exist.
func (r *Region) createAudit() error {
	folders := AuditFoldersOf(r.state.dir)
	for _, dir := range append([]string{folders.Sink, folders.Witness, folders.Keys}, folders.Queues...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the folders of the audit: %w", err)
		}
	}
	for _, service := range auditedServices() {
		if err := r.createAuditKey(service, filepath.Join(folders.Keys, service+".pem")); err != nil {
			return fmt.Errorf("creating the audit key of %s: %w", service, err)
		}
	}
	return nil
}

func (r *Region) createAuditKey(service, public string) error {
	key, err := audit.GenerateKey()
	if err != nil {
		return err
	}
	if err := key.Create(r.auditKeyFile(service)); errors.Is(err, fs.ErrExist) {
		if key, err = audit.LoadKey(r.auditKeyFile(service)); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	content, err := key.PublicPEM()
	if err != nil {
		return err
	}
	return replaceFile(public, content, 0o644)
}

// auditFlags returns the flags of a service that writes audit records.
func (r *Region) auditFlags(service string) []string {
	return []string{
		"--audit-queue-dir=" + r.state.path("audit", "queue", service),
		"--audit-sink-dir=" + r.state.path("audit", "sink"),
		"--audit-witness-dir=" + r.state.path("audit", "witness"),
		"--audit-signing-key-file=" + r.auditKeyFile(service),
	}
}
