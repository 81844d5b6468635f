package blobsink

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

// Storage is a sink that can be read.
type Storage interface {
	sink.Log
	sink.Reader
}

// Open returns the sink in a folder or, if url is not empty, in a container. It does not create the folder: a missing folder is storage that is
// not mounted, and counts as away. It accesses a container with the workload identity of this process.
func Open(dir, url string) (Storage, error) {
	if url == "" {
		return sink.FileAt(dir), nil
	}
	config, err := withWorkloadIdentity(url)
	if err != nil {
		return nil, err
	}
	return New(config)
}

// Witnesses is a witness that can be read.
type Witnesses interface {
	sink.Witness
	sink.WitnessReader
}

// OpenWitness is Open for a witness.
func OpenWitness(dir, url string) (Witnesses, error) {
	if url == "" {
		return sink.FileWitnessAt(dir), nil
	}
	config, err := withWorkloadIdentity(url)
	if err != nil {
		return nil, err
	}
	return NewWitness(config)
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
