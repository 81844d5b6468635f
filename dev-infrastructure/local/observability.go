package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
)

// WithObservability is the element of Config.With that adds Prometheus and Alertmanager to a region.
const WithObservability = "observability"

const (
	prometheusName   = "prometheus"
	alertmanagerName = "alertmanager"
)

// with reports whether the region has an optional part.
func (c *Config) with(part string) bool { return slices.Contains(c.With, part) }

// observability returns the specs of Alertmanager and Prometheus, if the region has them. Building them takes minutes once, so the region
// is ready without them, and they are built while it runs.
func (r *Region) observability() []supervisor.Spec {
	if !r.config.with(WithObservability) {
		return nil
	}
	dir := r.state.path("observability")
	spec := func(name string, port service, prepare func(context.Context) error, arguments ...string) supervisor.Spec {
		url := "http://" + r.address(port)
		return supervisor.Spec{
			Name:       name,
			Program:    r.thirdParty("observability", name),
			Args:       append(arguments, "--config.file="+filepath.Join(dir, name+".yaml"), "--web.listen-address="+r.address(port), "--log.level=warn"),
			Ports:      r.ports(name),
			Background: true,
			Prepare:    prepare,
			Ready:      httpReady(url+"/-/ready", nil),
			Live:       httpLive(url+"/-/healthy", nil),
		}
	}
	return []supervisor.Spec{
		spec(alertmanagerName, alertmanagerPort, r.prepareAlertmanager, "--storage.path="+filepath.Join(dir, "alertmanager-data"), "--cluster.listen-address="),
		spec(prometheusName, prometheusPort, r.preparePrometheus, "--storage.tsdb.path="+filepath.Join(dir, "prometheus-data"), "--storage.tsdb.retention.time=3d"),
	}
}

// buildObservability builds Prometheus and Alertmanager, unless they exist.
func (r *Region) buildObservability(ctx context.Context) error {
	if !r.config.Build {
		return nil
	}
	// The region, and whoever works with it, have priority.
	if err := r.runInSource(ctx, "nice", filepath.Join(r.config.SourceDir, "tooling", "third-party", "build.sh"), "observability"); err != nil {
		return fmt.Errorf("building Prometheus and Alertmanager: %w", err)
	}
	return nil
}

// webhooks matches the webhook of a receiver in the configuration of Alertmanager.
var webhooks = regexp.MustCompile(`(?m)^  webhook_configs:\n(    .*\n|  - .*\n)+`)

// prepareAlertmanager builds Alertmanager and writes its configuration: that of the environment, with receivers that notify nobody.
func (r *Region) prepareAlertmanager(ctx context.Context) error {
	if err := r.buildObservability(ctx); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(r.config.SourceDir, "dev-infrastructure", "alerts", "alertmanager", "public-local.yaml"))
	if err != nil {
		return err
	}
	return r.writeObservability(alertmanagerName, webhooks.ReplaceAll(config, nil))
}

// preparePrometheus builds Prometheus and writes its configuration. It scrapes all processes that export metrics, and evaluates the rule files
// of the checkout.
func (r *Region) preparePrometheus(ctx context.Context) error {
	if err := r.buildObservability(ctx); err != nil {
		return err
	}
	rules, err := ruleFiles(r.config.SourceDir)
	if err != nil {
		return fmt.Errorf("finding the rule files: %w", err)
	}
	type object = map[string]any
	static := func(addresses ...string) []object { return []object{{"targets": addresses}} }
	var scrapes []object
	ops := r.Endpoints().Ops
	for _, process := range slices.Sorted(maps.Keys(ops)) {
		if !r.config.without(process) {
			scrapes = append(scrapes, object{"job_name": process, "static_configs": static(ops[process])})
		}
	}
	config, err := json.MarshalIndent(object{ // JSON is YAML
		"global":         object{"scrape_interval": "15s", "evaluation_interval": "15s"},
		"rule_files":     rules,
		"scrape_configs": scrapes,
		"alerting":       object{"alertmanagers": []object{{"static_configs": static(r.address(alertmanagerPort))}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.writeObservability(prometheusName, config)
}

// writeObservability writes the configuration of a program.
func (r *Region) writeObservability(name string, config []byte) error {
	dir := r.state.path("observability")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, name+".yaml"), config, 0o600)
}

// ruleFiles returns the rule files of a checkout.
func ruleFiles(source string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != source, entry.IsDir() && entry.Name() == "node_modules":
			return filepath.SkipDir
		case strings.HasSuffix(name, ".rules.yaml"):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}
