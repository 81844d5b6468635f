// Package access maps groups to roles and decides what a caller of admin may do. A role includes all lower roles. The functions
// are pure; package internal/authn identifies the caller.
package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// roles holds all roles in ascending order; each includes those before it.
var roles = []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass}

// Config maps roles to groups.
type Config struct {
	// Groups maps each role to the IDs of the groups that have it.
	Groups map[adminv1.Role][]string `yaml:"groups"`
}

// Load reads a Config from a YAML file. It rejects unknown fields and roles.
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
	for role, groups := range config.Groups {
		if !slices.Contains(roles, role) {
			return nil, fmt.Errorf("%s: groups.%s: unknown role; supported roles: %v", path, role, roles)
		}
		if slices.Contains(groups, "") {
			return nil, fmt.Errorf("%s: groups.%s: empty group ID", path, role)
		}
	}
	return config, nil
}

// Roles returns the roles that the groups of a caller give, in ascending order; nil if there are none.
func (c *Config) Roles(caller authn.Caller) []adminv1.Role {
	for i, role := range slices.Backward(roles) {
		for _, group := range c.Groups[role] {
			if slices.ContainsFunc(caller.Groups, func(has string) bool { return asciifold.Equal(has, group) }) {
				return slices.Clone(roles[:i+1])
			}
		}
	}
	return nil
}

// Includes reports whether a role includes another.
func Includes(has, wanted adminv1.Role) bool {
	i, j := slices.Index(roles, has), slices.Index(roles, wanted)
	return i >= 0 && j >= 0 && i >= j
}

// Known reports whether a role exists.
func Known(role adminv1.Role) bool { return slices.Contains(roles, role) }
