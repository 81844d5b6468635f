package local

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
)

// Keyset has the files of a keyset of a region.
type Keyset struct {
	// File is the keyset. Public is the public keyset that belongs to it; empty if there is none.
	File, Public string
}

// KeysetOf returns the files of a keyset of the region in stateDir. kind is a kind of `hcpctl keys rotate`; shard is required for the
// kind agent.
func KeysetOf(stateDir, kind, shard string) (Keyset, error) {
	r := &Region{state: &state{dir: stateDir}}
	switch kind {
	case "signing-keys":
		return Keyset{File: r.signingKeysFile()}, nil
	case "credentials":
		return Keyset{File: r.credentialKeyFile()}, nil
	case "skip-tokens":
		return Keyset{File: r.skipTokenKeyFile()}, nil
	case "intents":
		return Keyset{File: r.intentKeyFile(), Public: r.intentPublicKeyFile()}, nil
	case "agent":
		described, err := Describe(stateDir)
		if err != nil {
			return Keyset{}, err
		}
		if _, ok := described.Kubeconfigs[shard]; !ok {
			var names []string
			for name := range described.Kubeconfigs {
				names = append(names, name)
			}
			slices.Sort(names)
			return Keyset{}, fmt.Errorf("--shard: %q is not a management cluster of the region: use one of %v", shard, names)
		}
		return Keyset{File: r.agentKeyFile(shard), Public: filepath.Join(r.shardKeysDir(), shard+".json")}, nil
	}
	return Keyset{}, fmt.Errorf("the local region has no keyset of the kind %q", kind)
}

// EncryptionFileOf returns the file with the keys with which the API server of a management cluster encrypts etcd.
func EncryptionFileOf(stateDir, managementCluster string) string {
	return filepath.Join(stateDir, "management", managementCluster, kubeapi.EncryptionFile)
}

// AuditKey has the files of the signing key of the audit records of a service, and the processes that use it.
type AuditKey struct {
	// File is the private key, and Public has the public keys of the service.
	File, Public string
	Processes    []string
}

// AuditKeyOf returns the files of an audit key of the region in stateDir.
func AuditKeyOf(stateDir, service string) (AuditKey, error) {
	services := append(auditedServices(), managementaudit.Service)
	if !slices.Contains(services, service) {
		return AuditKey{}, fmt.Errorf("--service: %q writes no audit records: use one of %v", service, services)
	}
	r := &Region{state: &state{dir: stateDir}}
	key := AuditKey{File: r.auditKeyFile(service), Public: r.auditPublicKeysFile(service), Processes: []string{service}}
	if service != managementaudit.Service {
		return key, nil
	}
	described, err := Describe(stateDir)
	if err != nil {
		return AuditKey{}, err
	}
	key.Processes = nil
	for name := range described.Kubeconfigs {
		key.Processes = append(key.Processes, name+"-"+managementaudit.Service)
	}
	return key, nil
}
