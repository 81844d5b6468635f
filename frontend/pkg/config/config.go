// Package config holds the catalogue that a region offers its customers: OpenShift versions, the Azure roles that
// operators need, virtual machine sizes and availability zones. The frontend reads it once at start, from a YAML file
// or the built-in one.
//
// Unknown fields are an error, so that a misspelt field cannot be ignored.
package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

//go:embed default.yaml
var builtIn []byte

// Config is the catalogue of a region.
type Config struct {
	// ClusterVersions lists the MAJOR.MINOR versions that clusters can have; empty means all that validation allows.
	ClusterVersions []string `yaml:"clusterVersions"`
	// RoleSets lists the identities that a cluster's operators need (hcpOperatorIdentityRoleSets).
	RoleSets []RoleSet `yaml:"roleSets"`
	// VMSizes lists the virtual machine sizes of node pools that the region has, in Azure's casing. Without an entry it gets
	// all sizes of package vmsize.
	VMSizes []string `yaml:"vmSizes"`
	// AvailabilityZones lists the zones of the region; empty means that it has none.
	AvailabilityZones []string `yaml:"availabilityZones"`
}

// zones are the availability zones that node pools can have.
var zones = []string{"1", "2", "3"}

// Default returns the built-in configuration.
func Default() (*Config, error) { return Load("") }

// Load reads the configuration from a file. The empty path means the built-in one.
func Load(path string) (*Config, error) {
	content := builtIn
	if path != "" {
		var err error
		if content, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
	}
	config, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	return config, nil
}

// parse reads a configuration. It refuses the whole file for one malformed element, such as an unknown size, and names the element: an operator deploys the
// file, and a replica with a wrong one does not start, so that the rollout stops.
func parse(content []byte) (*Config, error) {
	config := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil {
		return nil, err
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file must contain one YAML document")
	}
	for i, size := range config.VMSizes {
		if _, ok := vmsize.ArchitectureOf(size); !ok {
			return nil, fmt.Errorf("vmSizes[%d]: %q is not a size that node pools can have", i, size)
		}
	}
	for i, zone := range config.AvailabilityZones {
		if !slices.Contains(zones, zone) {
			return nil, fmt.Errorf("availabilityZones[%d]: %q is not one of %q, which HyperShift accepts", i, zone, zones)
		}
	}
	if len(config.VMSizes) == 0 {
		config.VMSizes = vmsize.Names()
	}
	return config, config.checkRoleSets()
}
