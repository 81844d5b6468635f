package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Release is an OpenShift release that customers are shown.
type Release struct {
	// Version is MAJOR.MINOR.PATCH.
	Version string `yaml:"version"`
	// ChannelGroups are those that the release is in: stable, fast, candidate, nightly.
	ChannelGroups []string `yaml:"channelGroups"`
	// EndOfLife is when its support ends.
	EndOfLife time.Time `yaml:"endOfLife"`
	// Enabled says whether it can be chosen.
	Enabled bool `yaml:"enabled"`
}

// RoleSet is what the operators of clusters of some versions need.
type RoleSet struct {
	// Versions are MAJOR.MINOR.
	Versions              []string   `yaml:"versions"`
	ControlPlaneOperators []Operator `yaml:"controlPlaneOperators"`
	DataPlaneOperators    []Operator `yaml:"dataPlaneOperators"`
}

// Operator is one operator of a cluster that acts in Azure.
type Operator struct {
	// Name is its key in a cluster's operatorsAuthentication.
	Name string `yaml:"name"`
	// Required is Always, or OnEnablement for one that only some clusters have.
	Required string `yaml:"required"`
	Roles    []Role `yaml:"roles"`
}

// Role is a built-in role of Azure.
type Role struct {
	Name string `yaml:"name"`
	// ID is the UUID of its definition.
	ID string `yaml:"id"`
}

// stable is the channel group of production, which names need not say.
const stable = "stable"

// Production reports whether everybody is shown a channel group; the others need a feature of the subscription.
func Production(channelGroup string) bool { return channelGroup == stable || channelGroup == "fast" }

var (
	releaseVersion = regexp.MustCompile(`^\d{1,2}\.\d{1,3}\.\d{1,4}$`)
	minorVersion   = regexp.MustCompile(`^\d{1,2}\.\d{1,3}$`)
	uuid           = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// offer fills in the releases where the configuration names none: those of the catalogue that clusters may have, in the
// channel groups whose channel of their minor version carries them.
func (c *Config) offer(catalogue *release.Catalog) error {
	if len(c.Releases) > 0 {
		return nil
	}
	for _, r := range catalogue.Releases() {
		minor := r.Version.MinorID()
		if len(c.ClusterVersions) > 0 && !slices.Contains(c.ClusterVersions, minor) {
			continue
		}
		shown := Release{Version: r.Version.String(), EndOfLife: catalogue.EndOfLife(minor), Enabled: true}
		for _, group := range channelGroups {
			if r.In(release.Channel(group, minor)) {
				shown.ChannelGroups = append(shown.ChannelGroups, group)
			}
		}
		if len(shown.ChannelGroups) > 0 {
			c.Releases = append(c.Releases, shown)
		}
	}
	if err := c.checkReleases(); err != nil {
		return fmt.Errorf("the release catalogue: %w", err)
	}
	return nil
}

// channelGroups in the order in which a release is shown in them.
var channelGroups = []string{stable, "fast", "candidate", "nightly"}

func (c *Config) checkReleases() error {
	seen := map[string]bool{}
	for i, release := range c.Releases {
		field := fmt.Sprintf("releases[%d]", i)
		switch {
		case !releaseVersion.MatchString(release.Version):
			return fmt.Errorf("%s.version: %q is not MAJOR.MINOR.PATCH", field, release.Version)
		case seen[release.Version]:
			return fmt.Errorf("%s.version: %s is there twice", field, release.Version)
		case len(release.ChannelGroups) == 0:
			return fmt.Errorf("%s.channelGroups: at least one is needed", field)
		case release.EndOfLife.IsZero():
			return fmt.Errorf("%s.endOfLife is missing", field)
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
				return fmt.Errorf("%s.versions: %s has a role set already", field, version)
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
		return fmt.Errorf("an operator has no name")
	case o.Required != "Always" && o.Required != "OnEnablement":
		return fmt.Errorf("operator %s: required: %q is not Always or OnEnablement", o.Name, o.Required)
	case len(o.Roles) == 0:
		return fmt.Errorf("operator %s: roles: at least one is needed", o.Name)
	}
	for _, role := range o.Roles {
		if role.Name == "" || !uuid.MatchString(role.ID) {
			return fmt.Errorf("operator %s: a role needs a name and the UUID of its definition, in lower case", o.Name)
		}
	}
	return nil
}

// OpenShiftVersions are the releases as customers see them, one for each channel group, in order of version.
func (c *Config) OpenShiftVersions() []hub.OpenShiftVersion {
	var all []hub.OpenShiftVersion
	releases := slices.Clone(c.Releases)
	slices.SortStableFunc(releases, func(a, b Release) int { return compareVersions(a.Version, b.Version) })
	for _, release := range releases {
		for _, group := range release.ChannelGroups {
			name := release.Version
			if group != stable {
				name += "-" + group
			}
			all = append(all, hub.OpenShiftVersion{Name: name, ChannelGroup: group, Enabled: release.Enabled, EndOfLife: release.EndOfLife.UTC()})
		}
	}
	return all
}

// NewestClusterVersion is what a cluster is given that leaves its version to the service: the newest that clusters may have
// of which a release of the channel group can be chosen; empty when there is none.
func (c *Config) NewestClusterVersion(channelGroup string) string {
	newest := ""
	for _, release := range c.Releases {
		minor := release.Version[:strings.LastIndexByte(release.Version, '.')]
		offered := len(c.ClusterVersions) == 0 || slices.Contains(c.ClusterVersions, minor)
		if !release.Enabled || !offered || !slices.Contains(release.ChannelGroups, channelGroup) {
			continue
		}
		if newest == "" || compareVersions(release.Version, newest+".0") > 0 {
			newest = minor
		}
	}
	return newest
}

// OperatorIdentityRoleSets are the role sets as customers see them, one for each version, in order of version.
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
		roles[i] = hub.OperatorIdentityRoles{Name: operator.Name, OnEnablement: operator.Required == "OnEnablement"}
		for _, role := range operator.Roles {
			roles[i].Roles = append(roles[i].Roles, hub.RoleDefinition{
				Name: role.Name, ID: "/providers/Microsoft.Authorization/roleDefinitions/" + role.ID,
			})
		}
	}
	return roles
}

// compareVersions orders versions whose form was checked.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		left, _ := strconv.Atoi(a)
		right, _ := strconv.Atoi(b)
		return cmp.Compare(left, right)
	})
}
