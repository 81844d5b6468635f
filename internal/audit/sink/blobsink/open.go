package blobsink

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

// Open returns the sink in a folder or, if url is not empty, in a container. It does not create the folder: a missing folder is storage that is
// not mounted, and counts as away. It accesses a container with the workload identity of this process.
func Open(dir, url string) (sink.Storage, error) {
	if url == "" {
		return sink.FileAt(dir), nil
	}
	config, err := withWorkloadIdentity(url)
	if err != nil {
		return nil, err
	}
	return New(config)
}

// OpenWitness is Open for a witness.
func OpenWitness(dir, url string) (*sink.WitnessLog, error) {
	if url == "" {
		return sink.FileWitnessAt(dir), nil
	}
	config, err := withWorkloadIdentity(url)
	if err != nil {
		return nil, err
	}
	return NewWitness(config)
}

// NewWitness returns the witness in a container. It should be in another account than the sink.
func NewWitness(c Config) (*sink.WitnessLog, error) {
	log, err := New(c)
	if err != nil {
		return nil, err
	}
	return sink.NewWitnessLog(log), nil
}

// withWorkloadIdentity returns the configuration of a container with the credential of this process's workload identity, whose settings are in
// the environment.
func withWorkloadIdentity(url string) (Config, error) {
	credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{DisableInstanceDiscovery: true})
	if err != nil {
		return Config{}, fmt.Errorf("the workload identity of this process for the container %s: %w", url, err)
	}
	return Config{URL: url, Credential: credential}, nil
}
