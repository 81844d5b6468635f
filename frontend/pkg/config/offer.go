package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// RoleSet lists the identities that operators need in clusters of some versions.
type RoleSet struct {
	// Versions have the form MAJOR.MINOR.
	Versions              []string   `yaml:"versions"`
	ControlPlaneOperators []Operator `yaml:"controlPlaneOperators"`
	DataPlaneOperators    []Operator `yaml:"dataPlaneOperators"`
}

// The values of Operator.Required.
const (
	Always       = "Always"
	OnEnablement = "OnEnablement"
)

// Operator is an operator of a cluster that uses a managed identity in Azure.
type Operator struct {
	// Name is the operator's key in a cluster's operatorsAuthentication.
	Name string `yaml:"name"`
	// Required is Always, or OnEnablement if only clusters with an optional feature need the operator.
	Required string `yaml:"required"`
	Roles    []Role `yaml:"roles"`
}

// Role is a built-in Azure role.
type Role struct {
	Name string `yaml:"name"`
	// ID is the UUID of the role definition.
	ID string `yaml:"id"`
}

var (
	minorVersion = regexp.MustCompile(`^\d{1,2}\.\d{1,3}$`)
	uuid         = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

func (c *Config) checkRoleSets() error {
	seen := map[string]bool{}
	for i, set := range c.RoleSets {
		field := fmt.Sprintf("roleSets[%d]", i)
		for _, version := range set.Versions {
			if !minorVersion.MatchString(version) {
				return fmt.Errorf("%s.versions: %q is not MAJOR.MINOR", field, version)
			}
			if seen[version] {
				return fmt.Errorf("%s.versions: %s belongs to another role set", field, version)
			}
			seen[version] = true
		}
		for _, operator := range slices.Concat(set.ControlPlaneOperators, set.DataPlaneOperators) {
			if err := operator.check(); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
	}
	return nil
}

func (o *Operator) check() error {
	switch {
	case o.Name == "":
		return errors.New("operator without a name")
	case o.Required != Always && o.Required != OnEnablement:
		return fmt.Errorf("operator %s: required: %q is not Always or OnEnablement", o.Name, o.Required)
	case len(o.Roles) == 0:
		return fmt.Errorf("operator %s: roles: must have at least one entry", o.Name)
	}
	for _, role := range o.Roles {
		if role.Name == "" || !uuid.MatchString(role.ID) {
			return fmt.Errorf("operator %s: roles: a role needs a name and the lower-case UUID of its definition", o.Name)
		}
	}
	return nil
}

// OperatorIdentityRoleSets returns the role sets as ARM resources in order of version, one for each version.
func (c *Config) OperatorIdentityRoleSets() []hub.OperatorIdentityRoleSet {
	var all []hub.OperatorIdentityRoleSet
	for _, set := range c.RoleSets {
		for _, version := range set.Versions {
			all = append(all, hub.OperatorIdentityRoleSet{
				Name: version, ControlPlaneOperators: operatorRoles(set.ControlPlaneOperators), DataPlaneOperators: operatorRoles(set.DataPlaneOperators),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b hub.OperatorIdentityRoleSet) int { return compareVersions(a.Name, b.Name) })
	return all
}

func operatorRoles(operators []Operator) []hub.OperatorIdentityRoles {
	roles := make([]hub.OperatorIdentityRoles, len(operators))
	for i, operator := range operators {
		roles[i] = hub.OperatorIdentityRoles{Name: operator.Name, OnEnablement: operator.Required == OnEnablement}
		for _, role := range operator.Roles {
			roles[i].Roles = append(roles[i].Roles, hub.RoleDefinition{
				Name: role.Name, ID: "/providers/Microsoft.Authorization/roleDefinitions/" + role.ID,
			})
		}
	}
	return roles
}

// compareVersions compares versions that were validated.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		left, _ := strconv.Atoi(a)
		right, _ := strconv.Atoi(b)
		return cmp.Compare(left, right)
	})
}
