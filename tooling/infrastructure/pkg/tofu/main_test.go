package tofu_test

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/azuretest"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

const (
	templates     = "../../../../dev-infrastructure/azure"
	configuration = "../../../../config"
	region        = "public/prod/westus3"
)

func open(t *testing.T) *deployment.Configuration {
	t.Helper()
	return must.Get(deployment.Open(configuration))(t)
}

func parse(t *testing.T, name string) layer.Target {
	t.Helper()
	return must.Get(layer.ParseTarget(name))(t)
}

// deploy is one scope of a target with a state.
type deploy struct {
	scope   tofu.Scope
	target  string
	state   string
	env     []string
	outputs map[tofu.Scope]json.RawMessage
	// templates is the folder of the templates; empty for those of the checkout.
	templates string
	// log is what tofu printed in the last workspace.
	log bytes.Buffer
	// output receives what tofu prints instead of log, if it is not nil.
	output io.Writer
	// change changes the configuration before it is used.
	change func(config map[string]any)
}

// workspace opens the scope.
func (d *deploy) workspace(t *testing.T) *tofu.Workspace {
	t.Helper()
	dir := azuretest.Programs(t)
	values := must.Get(tofu.NewVariables(open(t), d.scope, parse(t, d.target)))(t)
	must.Do(t, values.SetOuter(d.scope, d.outputs))
	if d.change != nil {
		d.change(values.Config.(map[string]any))
	}
	if d.state == "" {
		d.state = filepath.Join(t.TempDir(), "state")
	}
	if d.templates == "" {
		d.templates = templates
	}
	d.log.Reset()
	output := d.output
	if output == nil {
		output = &d.log
	}
	opened := must.Get(tofu.Open(t.Context(), d.scope, values, tofu.Options{Program: filepath.Join(dir, "tofu"), Mirror: filepath.Join(dir, "providers"), Templates: d.templates,
		Dir: t.TempDir(), State: d.state, Env: d.env, Log: output}))(t)
	return opened
}
