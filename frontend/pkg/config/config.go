// Package config is what a region offers its customers, as the people who run it decided: OpenShift versions, the Azure
// roles that their operators need, virtual machine sizes and availability zones. It is read once at start from a YAML file, or from the one that is built in.
//
// A field that is not known is refused, so that a misspelt one cannot pass for a decision.
package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

//go:embed default.yaml
var builtIn []byte

// Config is the region's offer.
type Config struct {
	// ClusterVersions are the MAJOR.MINOR versions that a cluster may be given; empty offers all that the rules allow.
	ClusterVersions []string `yaml:"clusterVersions"`
	// Releases are the OpenShift releases that customers are shown (hcpOpenShiftVersions). Empty shows those of the release
	// catalogue that clusters may have.
	Releases []Release `yaml:"releases"`
	// RoleSets say which identities the operators of a cluster need (hcpOperatorIdentityRoleSets).
	RoleSets []RoleSet `yaml:"roleSets"`
	// VMSizes are the virtual machine sizes that a node pool may have, in Azure's casing. At least one.
	VMSizes []string `yaml:"vmSizes"`
	// AvailabilityZones are those of the region; empty means that it has none.
	AvailabilityZones []string `yaml:"availabilityZones"`
}

// Default is the offer that is built in, of the catalogue that is built in.
func Default() (*Config, error) {
	catalogue, err := release.Default()
	if err != nil {
		return nil, err
	}
	config, err := parse(builtIn)
	if err != nil {
		return nil, fmt.Errorf("reading the built-in configuration: %w", err)
	}
	return config, config.offer(catalogue)
}

// Load reads the offer from a file, and the release catalogue that it is an offer of from another; an empty path takes what
// is built in.
func Load(path, cataloguePath string) (*Config, error) {
	catalogue, err := release.Load(cataloguePath)
	if err != nil {
		return nil, err
	}
	content := builtIn
	if path != "" {
		if content, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
	}
	config, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	return config, config.offer(catalogue)
}

func parse(content []byte) (*Config, error) {
	config := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil {
		return nil, err
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	if len(config.VMSizes) == 0 {
		return nil, errors.New("vmSizes: at least one is needed")
	}
	if err := config.checkReleases(); err != nil {
		return nil, err
	}
	return config, config.checkRoleSets()
}
