package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Strategy determines which of the shards that accept a cluster is chosen.
type Strategy string

// The strategies.
const (
	// Spread chooses the shard with the smallest used share of its capacity.
	Spread Strategy = "spread"
	// Pack chooses the shard with the largest used share.
	Pack Strategy = "pack"
)

// Strategies returns all strategies.
func Strategies() []Strategy { return []Strategy{Spread, Pack} }

// Policy contains the rules for choosing a shard. The policy of one cluster takes precedence over that of the region, field
// by field.
type Policy struct {
	Strategy Strategy `json:"strategy,omitempty"`
	// Zones are availability zones that the shard must have, all of them. MinimumZones is the number of zones that it must
	// have.
	Zones        []string          `json:"zones,omitempty"`
	MinimumZones int               `json:"minimumZones,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`

	// The following fields are only for the policy of one cluster.

	// SizeClass replaces the class that follows from the cluster's nodes.
	SizeClass string `json:"sizeClass,omitempty"`
	// Shard is the only shard that may be chosen; Avoid are shards that must not be chosen.
	Shard string   `json:"shard,omitempty"`
	Avoid []string `json:"avoid,omitempty"`
}

// over returns the policy with the region's values for fields that are not set.
func (p Policy) over(region Policy) Policy {
	p.Strategy = cmp.Or(p.Strategy, region.Strategy, Spread)
	if len(p.Zones) == 0 {
		p.Zones = region.Zones
	}
	p.MinimumZones = cmp.Or(p.MinimumZones, region.MinimumZones)
	if len(region.Labels) > 0 {
		labels := maps.Clone(region.Labels)
		maps.Copy(labels, p.Labels)
		p.Labels = labels
	}
	return p
}

// SizeClass is a range of cluster sizes.
type SizeClass struct {
	Name string `json:"name"`
	// MaxNodes is the largest number of nodes of this class; 0, which only the last class has, means no limit.
	MaxNodes int32 `json:"maxNodes,omitempty"`
}

// Rules are the placement rules of a region.
type Rules struct {
	Policy
	// SizeClasses are ordered from the smallest to the largest.
	SizeClasses []SizeClass `json:"sizeClasses,omitempty"`
	// SilentAfter, for example 5m, is how long an agent may leave works unanswered before its shard gets no new clusters.
	SilentAfter string `json:"silentAfter,omitempty"`
}

// DefaultSilentAfter is many times the duration of a full resync of an agent.
const DefaultSilentAfter = 5 * time.Minute

// DefaultRules returns the rules of a region without configuration.
func DefaultRules() Rules {
	return Rules{Policy: Policy{Strategy: Spread}, SilentAfter: DefaultSilentAfter.String(),
		SizeClasses: []SizeClass{{"small", 60}, {"medium", 252}, {"large", 0}}}
}

// Silence returns SilentAfter as a duration.
func (r *Rules) Silence() time.Duration {
	d, err := time.ParseDuration(r.SilentAfter)
	if err != nil || d <= 0 {
		return DefaultSilentAfter
	}
	return d
}

// Class returns the named size class if it exists, or else the class for the number of nodes.
func (r *Rules) Class(named string, nodes int32) string {
	for _, c := range r.SizeClasses {
		if c.Name == named {
			return named
		}
	}
	for _, c := range r.SizeClasses {
		if c.MaxNodes == 0 || nodes <= c.MaxNodes {
			return c.Name
		}
	}
	return ""
}

// ClassOf returns the size class of a cluster.
func (r *Rules) ClassOf(needs Needs, override Policy) string {
	return r.Class(cmp.Or(override.SizeClass, needs.SizeClass), needs.Nodes)
}

// size returns the position of a size class; an unknown class comes last.
func (r *Rules) size(class string) int {
	if i := slices.IndexFunc(r.SizeClasses, func(c SizeClass) bool { return c.Name == class }); i >= 0 {
		return i
	}
	return len(r.SizeClasses)
}

// HasClass reports whether a size class exists.
func (r *Rules) HasClass(name string) bool { return r.size(name) < len(r.SizeClasses) }

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	zonePattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_./]{0,125}[A-Za-z0-9])?$`)
)

// The bounds of values that an operator may set.
const (
	MaxZones  = 16
	MaxLabels = 32
	maxAvoid  = 100
)

// Violation is an invalid value. Field is its JSON path.
type Violation struct{ Field, Message string }

// CheckName validates the name of a shard. That of the service cluster is reserved: access sessions and audit records would mistake one for the other.
func CheckName(field, name string) []Violation {
	if name == adminv1.ServiceCluster {
		return []Violation{{field, fmt.Sprintf("Invalid value: %q: is the name of the service cluster", name)}}
	}
	return checkList(field, []string{name}, 1, namePattern)
}

// CheckZones validates a list of zones.
func CheckZones(field string, zones []string) []Violation {
	return checkList(field, zones, MaxZones, zonePattern)
}

// CheckLabels validates labels.
func CheckLabels(field string, labels map[string]string) []Violation {
	var problems []Violation
	if len(labels) > MaxLabels {
		problems = append(problems, Violation{field, fmt.Sprintf("Too many: %d: must have at most %d items", len(labels), MaxLabels)})
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelPattern.MatchString(key) || labels[key] != "" && !labelPattern.MatchString(labels[key]) {
			problems = append(problems, Violation{field, fmt.Sprintf("Invalid value: %q=%q: must match %s", key, labels[key], labelPattern)})
		}
	}
	return problems
}

// CheckClasses returns a violation for each unknown size class.
func (r *Rules) CheckClasses(field string, classes []string) []Violation {
	problems := checkList(field, classes, len(r.SizeClasses), namePattern)
	for i, class := range classes {
		if len(problems) == 0 && !r.HasClass(class) {
			problems = append(problems, Violation{fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("Unsupported value: %q: supported values: %s", class, r.classNames())})
		}
	}
	return problems
}

// Check validates the placement policy of one cluster.
func (r *Rules) Check(field string, p Policy) []Violation {
	problems := CheckZones(field+"zones", p.Zones)
	problems = append(problems, CheckLabels(field+"labels", p.Labels)...)
	problems = append(problems, checkList(field+"avoid", p.Avoid, maxAvoid, namePattern)...)
	if p.Strategy != "" && p.Strategy != Spread && p.Strategy != Pack {
		problems = append(problems, Violation{field + "strategy", fmt.Sprintf("Unsupported value: %q: supported values: %s, %s", p.Strategy, Spread, Pack)})
	}
	if p.MinimumZones < 0 || p.MinimumZones > MaxZones {
		problems = append(problems, Violation{field + "minimumZones", fmt.Sprintf("Invalid value: %d: must be between 0 and %d", p.MinimumZones, MaxZones)})
	}
	if p.SizeClass != "" && !r.HasClass(p.SizeClass) {
		problems = append(problems, Violation{field + "sizeClass", fmt.Sprintf("Unsupported value: %q: supported values: %s", p.SizeClass, r.classNames())})
	}
	if p.Shard != "" {
		problems = append(problems, CheckName(field+"shard", p.Shard)...)
		if slices.Contains(p.Avoid, p.Shard) {
			problems = append(problems, Violation{field + "avoid", fmt.Sprintf("Invalid value: %q: must not be the shard that the rules require", p.Shard)})
		}
	}
	return problems
}

func (r *Rules) classNames() string {
	names := ""
	for i, c := range r.SizeClasses {
		if i > 0 {
			names += ", "
		}
		names += c.Name
	}
	return names
}

func checkList(field string, values []string, most int, pattern *regexp.Regexp) []Violation {
	var problems []Violation
	if len(values) > most {
		problems = append(problems, Violation{field, fmt.Sprintf("Too many: %d: must have at most %d items", len(values), most)})
	}
	for i, value := range values {
		at := field
		if most > 1 {
			at = fmt.Sprintf("%s[%d]", field, i)
		}
		switch {
		case !pattern.MatchString(value):
			problems = append(problems, Violation{at, fmt.Sprintf("Invalid value: %q: must match %s", value, pattern)})
		case slices.Contains(values[:i], value):
			problems = append(problems, Violation{at, fmt.Sprintf("Duplicate value: %q", value)})
		}
	}
	return problems
}

// Validate validates the rules of a region.
func (r *Rules) Validate(path string) error {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", path, field, fmt.Sprintf(format, args...)))
	}
	if r.SizeClass != "" || r.Shard != "" || len(r.Avoid) > 0 {
		fail("sizeClass, shard, avoid", "are allowed only in the rules of one cluster")
	}
	for _, problem := range r.Check("", r.Policy) {
		fail(problem.Field, "%s", problem.Message)
	}
	if d, err := time.ParseDuration(r.SilentAfter); r.SilentAfter != "" && (err != nil || d <= 0) {
		fail("silentAfter", "%q is not a duration", r.SilentAfter)
	}
	if len(r.SizeClasses) == 0 {
		fail("sizeClasses", "must have at least one item")
	}
	for i, c := range r.SizeClasses {
		last := i == len(r.SizeClasses)-1
		switch {
		case !namePattern.MatchString(c.Name):
			fail(fmt.Sprintf("sizeClasses[%d].name", i), "%q does not match %s", c.Name, namePattern)
		case r.size(c.Name) != i:
			fail(fmt.Sprintf("sizeClasses[%d].name", i), "%q appears twice", c.Name)
		case last && c.MaxNodes != 0:
			fail(fmt.Sprintf("sizeClasses[%d].maxNodes", i), "must be 0 for the last class, which accepts any number of nodes")
		case !last && c.MaxNodes <= 0, i > 0 && !last && c.MaxNodes <= r.SizeClasses[i-1].MaxNodes:
			fail(fmt.Sprintf("sizeClasses[%d].maxNodes", i), "%d must be greater than that of the class before", c.MaxNodes)
		}
	}
	return errors.Join(errs...)
}
