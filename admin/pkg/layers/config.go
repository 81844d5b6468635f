package layers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Config lists the components that admin observes besides those that it uses itself.
type Config struct {
	Components []Target `yaml:"components"`
}

// Target states how to ask a component.
type Target struct {
	// Name, Layer and ProvisionShard are as in adminv1.Component.
	Name           string `yaml:"name"`
	Layer          string `yaml:"layer"`
	ProvisionShard string `yaml:"provisionShard,omitempty"`
	// Ready is the URL of the readiness endpoint: status 200 means ready. Alive is the URL of an endpoint that responds while the
	// process runs; it distinguishes a process that hangs from one that waits for a dependency. It may be empty.
	Ready string `yaml:"ready,omitempty"`
	Alive string `yaml:"alive,omitempty"`
	// CAFile is the certificate authority of https URLs.
	CAFile string `yaml:"caFile,omitempty"`
	// PostgreSQL is the address, host:port, of a PostgreSQL server, which is asked instead of a URL.
	PostgreSQL string `yaml:"postgresql,omitempty"`
}

// Load reads a Config from a YAML file. It rejects unknown fields and layers.
func Load(path string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	for i, t := range config.Components {
		if err := t.validate(); err != nil {
			return nil, fmt.Errorf("%s: components[%d].%w", path, i, err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("%s: components[%d].name: %q is not unique", path, i, t.Name)
		}
		seen[t.Name] = true
	}
	return config, nil
}

func (t *Target) validate() error {
	switch {
	case t.Name == "" || isBuiltin(t.Name):
		return fmt.Errorf("name: %q is empty or reserved", t.Name)
	case !slices.Contains(order, t.Layer):
		return fmt.Errorf("layer: %q is not one of %v", t.Layer, order)
	case (t.Ready == "") == (t.PostgreSQL == ""):
		return errors.New("ready: either ready or postgresql is required")
	}
	for field, text := range map[string]string{"ready": t.Ready, "alive": t.Alive} {
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("%s: %q is not an http or https URL", field, text)
		}
	}
	if t.PostgreSQL != "" {
		if _, _, err := net.SplitHostPort(t.PostgreSQL); err != nil {
			return fmt.Errorf("postgresql: %w", err)
		}
	}
	return nil
}
