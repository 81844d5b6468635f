package test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/alertmanager"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/lint"
)

// alertmanagerFolder has the configurations of Alertmanager, one for each environment.
const alertmanagerFolder = "dev-infrastructure/alerts/alertmanager"

// alertEnvironments returns the environments of the configuration, with the file of each. An environment is a production one if its regions
// are.
func alertEnvironments(t *testing.T) map[string]alertmanager.Environment {
	t.Helper()
	regions, err := filepath.Glob(filepath.Join(root(t), "config", "rendered", "*", "*", "*.yaml"))
	if err != nil || len(regions) == 0 {
		t.Fatal("no region has a rendered configuration", err)
	}
	environments := map[string]alertmanager.Environment{}
	for _, name := range regions {
		text := must.Get(os.ReadFile(name))(t)
		var region struct {
			Cloud, Environment string
			Production         bool
		}
		must.Do(t, yaml.Unmarshal(text, &region))
		file := alertmanagerFolder + "/" + region.Cloud + "-" + region.Environment + ".yaml"
		found := alertmanager.Environment{Name: region.Cloud + "/" + region.Environment, Production: region.Production}
		if other, ok := environments[file]; ok && other != found {
			t.Errorf("the regions of %s differ in the key production", found.Name)
		}
		environments[file] = found
	}
	return environments
}

// TestAlertmanagerConfigurations compares the configurations of Alertmanager with the code. With -update it rewrites them. If amtool is built, it
// checks them, and which receiver gets which severity.
func TestAlertmanagerConfigurations(t *testing.T) {
	environments := alertEnvironments(t)
	for file, environment := range environments {
		compareFile(t, file, alertmanager.Config(environment))
	}
	walk(t, func(name string) {
		if _, ok := environments[name]; strings.HasPrefix(name, alertmanagerFolder+"/") && !ok {
			t.Errorf("%s belongs to no environment", name)
		}
	})
	program := filepath.Join(filepath.Dir(promtool(t)), "amtool")
	for file, environment := range environments {
		config := filepath.Join(root(t), filepath.FromSlash(file))
		if output, err := exec.CommandContext(t.Context(), program, "check-config", config).CombinedOutput(); err != nil {
			t.Errorf("amtool check-config: %v\n%s", err, output)
		}
		want := map[string]string{"page": alertmanager.Pages, "ticket": alertmanager.Tickets, "heartbeat": alertmanager.Heartbeats, "planned": alertmanager.Nobody}
		if !environment.Production {
			want["page"] = alertmanager.Tickets
		}
		for severity, receiver := range want {
			output, err := exec.CommandContext(t.Context(), program, "config", "routes", "test", "--config.file="+config, "alertname=A", "severity="+severity).CombinedOutput()
			if got := strings.TrimSpace(string(output)); err != nil || got != receiver {
				t.Errorf("%s: severity %s goes to %q, want %q: %v", environment.Name, severity, got, receiver, err)
			}
		}
	}
}

// TestInhibitionsNameAlerts checks that the sources and targets of inhibitions are alerts, that alerts have the labels that must be equal, and
// that no alert about requests of customers is silenced by a cause.
func TestInhibitionsNameAlerts(t *testing.T) {
	linter := lint.Linter{Metrics: documentedMetrics(t), Runbook: func(string) error { return nil }, Command: checkCommand, Dashboard: checkDashboard}
	labels := map[string][]string{}
	for _, file := range ruleFiles(t) {
		linter.Lint(file)
		for _, alert := range file.Alerts() {
			found := must.Get(linter.Metrics.Labels(alert.Expr))(t)
			labels[alert.Alert] = append(found, slices.Sorted(maps.Keys(alert.Labels))...)
		}
	}
	for _, inhibition := range alertmanager.Inhibitions() {
		source, target := regexp.MustCompile("^("+inhibition.Source+")$"), regexp.MustCompile("^("+inhibition.Target+")$")
		sources, targets := 0, 0
		used := map[string]bool{}
		for name, has := range labels {
			if source.MatchString(name) {
				sources++
			} else if target.MatchString(name) {
				targets++
				if name == "ARMBurnFast" || name == "ControlPlaneLost" {
					t.Errorf("%s silences %s, which customers notice", inhibition.Source, name)
				}
			}
			for _, label := range inhibition.Equal {
				used[label] = used[label] || slices.Contains(has, label)
			}
		}
		if sources == 0 || targets == 0 {
			t.Errorf("%s → %s: %d sources and %d targets exist", inhibition.Source, inhibition.Target, sources, targets)
		}
		for _, alternative := range strings.Split(inhibition.Target, "|") {
			if strings.Contains(alternative, "(") || strings.Contains(alternative, ")") {
				continue
			}
			name := regexp.MustCompile("^(" + alternative + ")$")
			if !slices.ContainsFunc(slices.Collect(maps.Keys(labels)), name.MatchString) {
				t.Errorf("%s: no alert has the name %s", inhibition.Source, alternative)
			}
		}
		for _, label := range inhibition.Equal {
			if !used[label] {
				t.Errorf("%s → %s: no alert has the label %s", inhibition.Source, inhibition.Target, label)
			}
		}
	}
}
