// Package definition reads and checks the topology of a deployment and the pipelines of its service groups.
//
// The topology is a tree of service groups. Each group has a pipeline: steps with an action, inputs and dependencies. Open reads all
// files of a checkout and returns every error that can be found without a target: unknown references, cycles, keys that the
// configuration does not have, and secrets that are not references. An error names the file, the line and the path in the file.
package definition

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// TopologyFile is the topology, relative to the root of the checkout.
const TopologyFile = "dev-infrastructure/topology.yaml"

// Scope is the part of a deployment that has one instance of a service group.
type Scope string

// The scopes, from the widest to the narrowest.
const (
	ScopeEnvironment Scope = "environment"
	ScopeRegion      Scope = "region"
	ScopeStamp       Scope = "stamp"
)

// Level returns the level of the configuration's layers that belongs to the scope.
func (s Scope) Level() int {
	switch s {
	case ScopeEnvironment:
		return layer.Environment
	case ScopeRegion:
		return layer.Region
	}
	return layer.Stamp
}

// Topology is the tree of service groups.
type Topology struct {
	// Groups are all groups in the order of the file, a parent before its children.
	Groups []*Group
	byName map[string]*Group
}

// Group returns the group with a name, or nil.
func (t *Topology) Group(name string) *Group { return t.byName[name] }

// Group is a service group.
type Group struct {
	Name    string `json:"name"`
	Scope   Scope  `json:"scope"`
	Purpose string `json:"purpose"`
	// File is the pipeline, relative to the root of the checkout.
	File string `json:"pipeline"`
	// DependsOn are the names of groups besides the parent whose steps must end first.
	DependsOn []string `json:"dependsOn"`
	Children  []*Group `json:"children"`

	Parent *Group  `json:"-"`
	Steps  []*Step `json:"-"`
	node   *document.Node
	path   string
}

// Step is one step of a pipeline.
type Step struct {
	Name   string `json:"name"`
	Action string `json:"action"`
	// DependsOn are steps of the same group, or GROUP/STEP.
	DependsOn []string         `json:"dependsOn"`
	Inputs    map[string]Input `json:"inputs"`
	// Outputs are the names of the values that the action must return.
	Outputs []string `json:"outputs"`
	// Files are files and folders that the action reads, relative to the root of the checkout.
	Files   []string `json:"files"`
	Timeout Duration `json:"timeout"`
	Retry   *Retry   `json:"retry"`
	// With are the parameters of the action. ${NAME} in a string is replaced by an input.
	With map[string]any `json:"with"`
	// Gates are checks after the action. The step fails if one of them does.
	Gates []Gate `json:"gates"`
	// DeletionGates are checks before anything of the target is deleted.
	DeletionGates []Gate `json:"deletionGates"`
	// Rollback requests that a failed step is rolled back to its last success.
	Rollback bool `json:"rollback"`

	Group *Group `json:"-"`
	node  *document.Node
	path  string
}

// ID returns GROUP/STEP.
func (s *Step) ID() string { return s.Group.Name + "/" + s.Name }

// Input is a value of a step: exactly one field is set.
type Input struct {
	Value string `json:"value,omitempty"`
	// Configuration is a key of the rendered configuration.
	Configuration string `json:"configuration,omitempty"`
	// Secret is a key of the rendered configuration that refers to a secret. The action gets the path of a file with the secret.
	Secret string  `json:"secret,omitempty"`
	Output *Output `json:"output,omitempty"`
}

// Output refers to an output of another step.
type Output struct {
	// Step is a step of the same group, or GROUP/STEP.
	Step string `json:"step"`
	Name string `json:"name"`
}

// Retry repeats an action that failed with one of the classes of errors.
type Retry struct {
	Errors   []string `json:"errors"`
	Attempts int      `json:"attempts"`
	// Pause is the first pause. It doubles with each attempt, to at most ten times its value.
	Pause Duration `json:"pause"`
}

// Gate is a check after an action, or before a deletion: exactly one of HTTP, Metric, Explain and Command is set.
type Gate struct {
	Name string `json:"name"`
	// Timeout is the time in which the check must succeed once.
	Timeout Duration     `json:"timeout"`
	HTTP    *HTTPGate    `json:"http,omitempty"`
	Metric  *MetricGate  `json:"metric,omitempty"`
	Explain *ExplainGate `json:"explain,omitempty"`
	Command []string     `json:"command,omitempty"`
}

// HTTPGate succeeds when a GET request returns the status.
type HTTPGate struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
}

// MetricGate succeeds when a query of Prometheus returns at least one sample and all samples are within the limits.
type MetricGate struct {
	URL     string   `json:"url"`
	Query   string   `json:"query"`
	AtLeast *float64 `json:"atLeast,omitempty"`
	AtMost  *float64 `json:"atMost,omitempty"`
}

// ExplainGate succeeds when `hcpctl explain` reports that every component of the region is ready.
type ExplainGate struct {
	// Endpoint is the URL of admin, and Audience the audience of tokens for it.
	Endpoint string `json:"endpoint"`
	Audience string `json:"audience"`
}

// Duration is a time.Duration with the text form "90s".
type Duration time.Duration

// UnmarshalJSON parses the text form.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("parsing a duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }
