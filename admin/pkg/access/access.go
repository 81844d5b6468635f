// Package access maps groups or app roles to roles and decides what a caller of admin may do. A role includes all lower roles. The
// functions are pure; package internal/authn identifies the caller.
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

// Config maps roles to groups and app roles, and requires claims for roles.
type Config struct {
	// Groups maps each role to the IDs of the groups that have it.
	Groups map[adminv1.Role][]string `yaml:"groups"`
	// AppRoles maps each role to the values of the app roles that have it. A caller has the highest role that a group or an app role
	// gives.
	AppRoles map[adminv1.Role][]string `yaml:"appRoles"`
	// Conditions maps a role to what the token of a caller must show at each use of the role.
	Conditions map[adminv1.Role]Condition `yaml:"conditions"`
	// AuthorizationURI is where a person signs in again who lacks claims. Empty means Entra's.
	AuthorizationURI string `yaml:"authorizationURI"`
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
	for field, mapping := range map[string]map[adminv1.Role][]string{"groups": config.Groups, "appRoles": config.AppRoles} {
		for role, values := range mapping {
			if !slices.Contains(roles, role) {
				return nil, fmt.Errorf("%s: %s.%s: unknown role; supported roles: %v", path, field, role, roles)
			}
			if slices.Contains(values, "") {
				return nil, fmt.Errorf("%s: %s.%s: empty value", path, field, role)
			}
		}
	}
	if err := config.checkConditions(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Roles returns the roles that the groups and app roles of a caller give, in ascending order; nil if there are none.
func (c *Config) Roles(caller authn.Caller) []adminv1.Role {
	has := func(values []string, wanted string) bool {
		return slices.ContainsFunc(values, func(value string) bool { return asciifold.Equal(value, wanted) })
	}
	for i, role := range slices.Backward(roles) {
		if slices.ContainsFunc(c.Groups[role], func(group string) bool { return has(caller.Groups, group) }) ||
			slices.ContainsFunc(c.AppRoles[role], func(appRole string) bool { return slices.Contains(caller.Roles, appRole) }) {
			return slices.Clone(roles[:i+1])
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
