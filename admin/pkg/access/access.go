// Package access decides what a caller of admin may do: groups give roles, and a role includes those below it. It is pure;
// who the caller is was decided before (internal/authn).
package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// roles is every role, the least first: each includes those before it.
var roles = []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass}

// Config says which groups have which roles.
type Config struct {
	// Groups maps each role to the ids of the groups whose members have it.
	Groups map[adminv1.Role][]string `yaml:"groups"`
}

// Load reads a Config; what is unknown in it is refused by its name.
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
			return nil, fmt.Errorf("%s: groups.%s: there is no such role; there are %v", path, role, roles)
		}
		if slices.Contains(groups, "") {
			return nil, fmt.Errorf("%s: groups.%s: a group's id is empty", path, role)
		}
	}
	return config, nil
}

// Roles are those that a caller's groups give, the least first, with what they include; none for a guest.
func (c *Config) Roles(caller authn.Caller) []adminv1.Role {
	for i, role := range slices.Backward(roles) {
		for _, group := range c.Groups[role] {
			if slices.ContainsFunc(caller.Groups, func(has string) bool { return strings.EqualFold(has, group) }) {
				return slices.Clone(roles[:i+1])
			}
		}
	}
	return nil
}

// Includes reports whether having a role is enough where another is wanted.
func Includes(has, wanted adminv1.Role) bool {
	i, j := slices.Index(roles, has), slices.Index(roles, wanted)
	return i >= 0 && j >= 0 && i >= j
}

// Known reports whether there is such a role.
func Known(role adminv1.Role) bool { return slices.Contains(roles, role) }
