package rule

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// The limits of Azure Monitor.
const (
	// MostAzureRules is the number of rules that a group may have.
	MostAzureRules = 20
	// longestAzureInterval is the longest time between two evaluations.
	longestAzureInterval = 15 * time.Minute
)

// AzureGroup is a rule group. The templates add the workspace, the location and the action groups.
type AzureGroup struct {
	Name     string      `json:"name"`
	Interval string      `json:"interval"`
	Rules    []AzureRule `json:"rules"`
}

// AzureRule is a rule of a group, with the names of Azure's API.
type AzureRule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expression  string            `json:"expression"`
	For         string            `json:"for,omitempty"`
	Severity    *int              `json:"severity,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Resolve     *AzureResolve     `json:"resolveConfiguration,omitempty"`
}

// AzureResolve ends an alert of Azure when its condition does not hold any more.
type AzureResolve struct {
	Auto bool   `json:"autoResolved"`
	Time string `json:"timeToResolve"`
}

// severities are Azure's severities, from 0 (critical) to 4 (verbose).
var severities = map[Severity]int{Page: 1, Ticket: 3, Heartbeat: 4, Planned: 4}

// groupName is what Azure accepts as the name of a resource of this type.
var groupName = regexp.MustCompile(`^[^:@/#{}%&+*<>?]{1,260}$`)

// AzureGroups renders the groups of rule files, in their order, as rule groups of Azure Monitor, which evaluates them for the metrics of a workspace.
// The templates of a region create a resource Microsoft.AlertsManagement/prometheusRuleGroups for each group, with these bodies. The name of a group is unique in a resource group, so two groups must not have the
// same name.
func AzureGroups(files []File) ([]AzureGroup, error) {
	var groups []AzureGroup
	seen := map[string]bool{}
	for _, file := range files {
		for _, group := range file.Groups {
			rendered, err := renderAzure(group)
			if err != nil {
				return nil, fmt.Errorf("%s: group %s: %w", file.Name, group.Name, err)
			}
			if seen[group.Name] {
				return nil, fmt.Errorf("%s: another group has the name %s", file.Name, group.Name)
			}
			seen[group.Name] = true
			groups = append(groups, rendered)
		}
	}
	return groups, nil
}

func renderAzure(group Group) (AzureGroup, error) {
	interval := time.Minute
	if group.Interval != "" {
		var err error
		if interval, err = time.ParseDuration(group.Interval); err != nil {
			return AzureGroup{}, err
		}
	}
	switch {
	case !groupName.MatchString(group.Name):
		return AzureGroup{}, fmt.Errorf("the name has characters that Azure refuses")
	case interval < time.Minute || interval > longestAzureInterval:
		return AzureGroup{}, fmt.Errorf("the interval %s is not between 1m and %s", group.Interval, longestAzureInterval)
	case len(group.Rules) > MostAzureRules:
		return AzureGroup{}, fmt.Errorf("it has %d rules; Azure accepts %d", len(group.Rules), MostAzureRules)
	}
	rendered := AzureGroup{Name: group.Name, Interval: iso(interval)}
	for _, each := range group.Rules {
		converted := AzureRule{Record: each.Record, Alert: each.Alert, Expression: each.Expr, Labels: each.Labels, Annotations: each.Annotations}
		if each.Alert != "" {
			severity := severities[Severity(each.Labels["severity"])]
			converted.Severity, converted.Resolve = &severity, &AzureResolve{Auto: true, Time: iso(time.Minute)}
			converted.For = iso(0)
			if each.For != "" {
				hold, err := time.ParseDuration(each.For)
				if err != nil {
					return AzureGroup{}, fmt.Errorf("%s: %w", each.Alert, err)
				}
				converted.For = iso(hold)
			}
		}
		rendered.Rules = append(rendered.Rules, converted)
	}
	return rendered, nil
}

// iso returns a duration of whole minutes as in ISO 8601, for example PT1H30M.
func iso(d time.Duration) string {
	hours, minutes := int(d.Hours()), int(d.Minutes())%60
	var text strings.Builder
	text.WriteString("PT")
	if hours > 0 {
		fmt.Fprintf(&text, "%dH", hours)
	}
	if minutes > 0 || hours == 0 {
		fmt.Fprintf(&text, "%dM", minutes)
	}
	return text.String()
}
