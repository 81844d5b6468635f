package tofu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// ScopeOptions are the folders and files of all scopes.
type ScopeOptions struct {
	// Templates is the folder with the scopes, Programs that with tofu and its providers.
	Templates, Programs string
	// Dir has the states and the work folders.
	Dir string
	// Backend is a file that selects another place for the state; empty for a file in Dir.
	Backend string
	// Env is the environment of tofu; nil means that of this process.
	Env []string
}

// ScopePath returns a file of a scope in a folder. A scope belongs to an environment, a region or a stamp.
func ScopePath(dir string, scope Scope, target layer.Target, name string) string {
	owner := target
	switch scope {
	case Global:
		owner = target[:layer.Environment]
	case Region, ServiceCluster:
		owner = target[:layer.Region]
	}
	return filepath.Join(dir, filepath.Join(owner...), string(scope)+name)
}

// OpenScope prepares tofu for a scope of a target. log receives what tofu prints.
func OpenScope(ctx context.Context, scope Scope, target layer.Target, values *Variables, o ScopeOptions, log io.Writer) (*Workspace, error) {
	program := filepath.Join(o.Programs, "tofu")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("OpenTofu is not built: %w; run tooling/third-party/build.sh opentofu", err)
	}
	if err := os.MkdirAll(filepath.Dir(ScopePath(o.Dir, scope, target, "")), 0o700); err != nil {
		return nil, err
	}
	return Open(ctx, scope, values, Options{Program: program, Mirror: filepath.Join(o.Programs, "providers"), Templates: o.Templates,
		Dir: ScopePath(o.Dir, scope, target, ".work"), State: ScopePath(o.Dir, scope, target, ".tfstate"), Backend: o.Backend, Env: o.Env, Log: log})
}

// Apply checks a plan and applies it. allowed are the addresses of resources with data that may be deleted. With adopt, it repeats this with
// the resources in the state that exist; each time there are fewer.
func Apply(ctx context.Context, w *Workspace, plan *Plan, allowed []string, adopt bool) error {
	for {
		if err := plan.Check(allowed); err != nil {
			return err
		}
		err := w.Apply(ctx)
		var exists *ExistsError
		if !adopt || !errors.As(err, &exists) {
			return err
		}
		if err := w.Adopt(exists.Resources); err != nil {
			return err
		}
		if plan, err = w.Plan(ctx, false, true); err != nil {
			return err
		}
	}
}
