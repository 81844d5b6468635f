package local

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
)

// startSpecs returns the specs of all processes with the programs of Config.Programs.
func (r *Region) startSpecs(ctx context.Context) ([]supervisor.Spec, error) {
	specs := r.specs()
	for _, process := range slices.Sorted(maps.Keys(r.config.Programs)) {
		i := slices.IndexFunc(specs, func(spec supervisor.Spec) bool { return spec.Name == process })
		if i < 0 {
			continue // a process that the region does not start
		}
		program, err := otherBuild(ctx, &specs[i], r.config.Programs[process])
		if err != nil {
			return nil, err
		}
		specs[i].Program, specs[i].Args = program.Path, program.Args
	}
	return specs, nil
}

// ReplaceProgram restarts a process with the program in a folder, such as the previous release's; an empty dir stands for the programs of
// SourceDir. It returns when the process is ready. Later starts of the process use the program too.
func (r *Region) ReplaceProgram(ctx context.Context, process, dir string) error {
	specs := r.specs()
	i := slices.IndexFunc(specs, func(spec supervisor.Spec) bool { return spec.Name == process })
	if i < 0 {
		return fmt.Errorf("the region has no process %s", process)
	}
	program := supervisor.Program{Path: specs[i].Program, Args: specs[i].Args}
	if dir != "" {
		var err error
		if program, err = otherBuild(ctx, &specs[i], dir); err != nil {
			return err
		}
	}
	r.mu.Lock()
	if r.programs == nil {
		r.programs = map[string]string{}
	}
	r.programs[process] = dir
	r.mu.Unlock()
	return r.supervisor.Replace(ctx, process, program)
}

// Migrate migrates the database of a service with the program in a folder, while the service runs, as the job of a rollout does before the
// first replica is replaced. An empty dir stands for the programs of SourceDir.
func (r *Region) Migrate(ctx context.Context, service, dir string) error {
	if dir == "" {
		dir = r.binDir()
	}
	for _, database := range serviceDatabases() {
		if database.program == service {
			if err := r.migrate(ctx, &database, filepath.Join(dir, service), r.database.Load().log); err != nil {
				return fmt.Errorf("migrating the database %s: %w", database.Name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("%s has no database", service)
}

// programOf returns the path of the program that a process uses now.
func (r *Region) programOf(process, program string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dir := r.programs[process]; dir != "" {
		return filepath.Join(dir, program)
	}
	return r.program(program)
}

// otherBuild returns the program of a spec in dir, with the arguments that it has. In a deployment, the chart of a release gives its
// programs the flags that they have.
func otherBuild(ctx context.Context, spec *supervisor.Spec, dir string) (supervisor.Program, error) {
	if spec.Program == "" {
		return supervisor.Program{}, fmt.Errorf("%s has no program that can be replaced", spec.Name)
	}
	path := filepath.Join(dir, filepath.Base(spec.Program))
	help, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	if err != nil {
		return supervisor.Program{}, fmt.Errorf("reading the flags of %s: %w", path, err)
	}
	return supervisor.Program{Path: path, Args: knownFlags(spec.Args, string(help))}, nil
}

// flagLine is the line of a flag in the help of a program.
var flagLine = regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`)

// knownFlags returns the arguments whose flags are in the help of a program.
func knownFlags(arguments []string, help string) []string {
	known := map[string]bool{}
	for _, match := range flagLine.FindAllStringSubmatch(help, -1) {
		known[match[1]] = true
	}
	var kept []string
	for _, argument := range arguments {
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if known[name] {
			kept = append(kept, argument)
		}
	}
	return kept
}
