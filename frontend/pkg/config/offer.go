package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Release is an OpenShift release that customers see.
type Release struct {
	// Version has the form MAJOR.MINOR.PATCH.
	Version string `yaml:"version"`
	// ChannelGroups lists the release's channel groups: stable, fast, candidate, nightly.
	ChannelGroups []string `yaml:"channelGroups"`
	// EndOfLife is the time at which support for the release ends.
	EndOfLife time.Time `yaml:"endOfLife"`
	// Enabled reports whether customers can select the release.
	Enabled bool `yaml:"enabled"`
}

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

// stable is the channel group that names of versions omit.
const stable = "stable"

var (
	releaseVersion = regexp.MustCompile(`^\d{1,2}\.\d{1,3}\.\d{1,4}$`)
	minorVersion   = regexp.MustCompile(`^\d{1,2}\.\d{1,3}$`)
	uuid           = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// offer sets the releases if the configuration has none: the releases of the catalogue that clusters can have, in each
// channel group whose channel of their minor version contains them.
func (c *Config) offer(catalogue *release.Catalog) error {
	if len(c.Releases) > 0 {
		return nil
	}
	for _, r := range catalogue.Releases() {
		minor := r.Version.MinorID()
		if len(c.ClusterVersions) > 0 && !slices.Contains(c.ClusterVersions, minor) {
			continue
		}
		offered := Release{Version: r.Version.String(), EndOfLife: catalogue.EndOfLife(minor), Enabled: true}
		for _, group := range channelGroups {
			if r.In(release.Channel(group, minor)) {
				offered.ChannelGroups = append(offered.ChannelGroups, group)
			}
		}
		if len(offered.ChannelGroups) > 0 {
			c.Releases = append(c.Releases, offered)
		}
	}
	if err := c.checkReleases(); err != nil {
		return fmt.Errorf("the release catalogue: %w", err)
	}
	return nil
}

// channelGroups lists the channel groups in the order of a release's entries.
var channelGroups = []string{stable, "fast", "candidate", "nightly"}

func (c *Config) checkReleases() error {
	seen := map[string]bool{}
	for i, release := range c.Releases {
		field := fmt.Sprintf("releases[%d]", i)
		switch {
		case !releaseVersion.MatchString(release.Version):
			return fmt.Errorf("%s.version: %q is not MAJOR.MINOR.PATCH", field, release.Version)
		case seen[release.Version]:
			return fmt.Errorf("%s.version: %s is a duplicate", field, release.Version)
		case len(release.ChannelGroups) == 0:
			return fmt.Errorf("%s.channelGroups: must have at least one entry", field)
		case release.EndOfLife.IsZero():
			return fmt.Errorf("%s.endOfLife: is required", field)
		}
		seen[release.Version] = true
		for _, group := range release.ChannelGroups {
			if !slices.Contains(channelGroups, group) {
				return fmt.Errorf("%s.channelGroups: %q is not one of stable, fast, candidate, nightly", field, group)
			}
		}
	}
	return nil
}

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

// HasChannel reports whether a channel group has a release of a minor version. It is true if the region lists no releases.
func (c *Config) HasChannel(channelGroup, minor string) bool {
	return len(c.Releases) == 0 || slices.ContainsFunc(c.Releases, func(release Release) bool {
		return strings.HasPrefix(release.Version, minor+".") && slices.Contains(release.ChannelGroups, channelGroup)
	})
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
