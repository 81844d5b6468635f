// Package tofu runs OpenTofu on the infrastructure templates: one scope of one target, in a work folder of its own, without downloads. The
// provider comes from a mirror on disk. A plan is stored, checked and then applied as it is, so that nothing is applied
// that was not checked. Plan.Check finds changes that delete data: data stores, vaults, registries, zones and clusters. Such a change must be
// allowed by name, also if the templates permit it. The programs infrastructure and rollout use the package.
package tofu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options configure a Workspace.
type Options struct {
	// Program is the path of tofu, Mirror a folder with the provider (see tooling/third-party/build.sh infrastructure).
	Program, Mirror string
	// Templates is the folder with the scopes.
	Templates string
	// Dir is the work folder of this scope and target. It is created, and its templates are replaced.
	Dir string
	// State is the file with the state, if Backend is empty. Backend is the path of a file with a terraform block that selects another
	// place for the state, for example a storage account.
	State, Backend string
	// Env is the environment of tofu and its provider; nil means that of this process.
	Env []string
	// Log receives what tofu prints; nil discards it.
	Log io.Writer
}

// Workspace is a scope of a target that is ready for plans.
type Workspace struct {
	options Options
	scope   Scope
	log     *shared
	// plan is the plan that is stored.
	plan *Plan
	// adopted are the resources that plans add to the state.
	adopted []Existing
}

// planFile is the stored plan in the scope's folder.
const planFile = "plan.bin"

// Open copies the templates, writes the variables and initializes the provider.
func Open(ctx context.Context, scope Scope, values *Variables, o Options) (*Workspace, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	for _, file := range []*string{&o.Program, &o.Mirror, &o.Dir, &o.State, &o.Backend} {
		if *file == "" {
			continue
		}
		absolute, err := filepath.Abs(*file)
		if err != nil {
			return nil, err
		}
		*file = absolute
	}
	w := &Workspace{options: o, scope: scope, log: &shared{to: o.Log}}
	if err := w.prepare(values); err != nil {
		return nil, fmt.Errorf("preparing the scope %s: %w", scope, err)
	}
	return w, w.run(ctx, nil, "init", "-input=false", "-no-color", "-reconfigure")
}

// prepare writes all files that tofu reads.
func (w *Workspace) prepare(values *Variables) error {
	templates := filepath.Join(w.options.Dir, "templates")
	if err := os.RemoveAll(templates); err != nil {
		return err
	}
	if err := os.MkdirAll(w.options.Dir, 0o700); err != nil {
		return err
	}
	if err := os.CopyFS(templates, os.DirFS(w.options.Templates)); err != nil {
		return err
	}
	if w.options.State == "" && w.options.Backend == "" {
		return errors.New("the place of the state is not set")
	}
	backend := fmt.Appendf(nil, "terraform {\n  backend \"local\" { path = %q }\n}\n", w.options.State)
	if w.options.Backend != "" {
		read, err := os.ReadFile(w.options.Backend)
		if err != nil {
			return fmt.Errorf("reading the backend: %w", err)
		}
		backend = read
	}
	// prevent_destroy protects people who run tofu by hand. Here Plan.Check decides, which names each deletion.
	values.AllowLoss = true
	text, err := json.MarshalIndent(values, "", "  ")
	if err != nil {
		return err
	}
	cli := fmt.Sprintf("provider_installation {\n  filesystem_mirror { path = %q }\n}\ndisable_checkpoint = true\n", w.options.Mirror)
	for name, content := range map[string][]byte{
		w.file("backend_override.tf"): backend, w.file("values.auto.tfvars.json"): text, filepath.Join(w.options.Dir, "tofurc"): []byte(cli),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) file(name string) string {
	return filepath.Join(w.options.Dir, "templates", string(w.scope), name)
}

// Plan stores a plan and returns it. With destroy, the plan deletes everything. Without refresh, tofu compares with its state alone and
// calls no service.
func (w *Workspace) Plan(ctx context.Context, destroy, refresh bool) (*Plan, error) {
	arguments := []string{"plan", "-input=false", "-no-color", "-lock-timeout=60s", "-out=" + planFile, fmt.Sprintf("-refresh=%t", refresh)}
	if destroy {
		arguments = append(arguments, "-destroy")
	}
	if err := w.run(ctx, nil, arguments...); err != nil {
		return nil, err
	}
	var shown bytes.Buffer
	if err := w.run(ctx, &shown, "show", "-json", planFile); err != nil {
		return nil, err
	}
	var err error
	w.plan, err = ReadPlan(&shown)
	return w.plan, err
}

// Apply applies the stored plan. A plan is applied once. The error contains an *ExistsError if resources exist that the state does not
// have, for example because an earlier apply was interrupted while Azure created them.
func (w *Workspace) Apply(ctx context.Context) error {
	printed := &messages{to: w.log}
	// The templates leave keys of vaults to their vault. Without the flag, tofu destroys a scope with such a key and then fails.
	err := w.run(ctx, printed, "apply", "-json", "-input=false", "-lock-timeout=60s", "-suppress-forget-errors", planFile)
	if err != nil {
		err = errors.Join(err, printed.err(w.plan))
	}
	return errors.Join(err, os.Remove(w.file(planFile)))
}

// Adopt makes the next plan add existing resources to the state. The plan also changes them to what the templates want.
func (w *Workspace) Adopt(existing []Existing) error {
	w.adopted = append(w.adopted, existing...)
	var text strings.Builder
	for _, e := range w.adopted {
		fmt.Fprintf(&text, "import {\n  to = %s\n  id = %q\n}\n", e.Address, e.ID+"?api-version="+e.Version)
	}
	return os.WriteFile(w.file("adopted.tf"), []byte(text.String()), 0o600)
}

// Outputs returns the outputs of the scope, or nil if it has none.
func (w *Workspace) Outputs(ctx context.Context) (json.RawMessage, error) {
	var printed bytes.Buffer
	if err := w.run(ctx, &printed, "output", "-json"); err != nil {
		return nil, err
	}
	var all map[string]struct{ Value json.RawMessage }
	if err := json.Unmarshal(printed.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("reading the outputs of %s: %w", w.scope, err)
	}
	return all["result"].Value, nil
}

// maxShown bounds the part of tofu's error output in an error.
const maxShown = 4 << 10

// run runs tofu. It interrupts tofu when ctx ends, so that tofu stores its state, and when this process is killed.
func (w *Workspace) run(ctx context.Context, out io.Writer, arguments ...string) error {
	command := exec.CommandContext(ctx, w.options.Program, arguments...)
	command.Dir = w.file("")
	command.Env = w.options.Env
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, "TF_CLI_CONFIG_FILE="+filepath.Join(w.options.Dir, "tofurc"), "TF_IN_AUTOMATION=1")
	var failure tail
	command.Stdout, command.Stderr = w.log, io.MultiWriter(w.log, &failure)
	if out != nil {
		command.Stdout = out
	}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	interruptWithParent(command)
	finished := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal for the death of the parent is that of the thread which starts the process
		defer runtime.UnlockOSThread()
		finished <- command.Run()
	}()
	if err := <-finished; err != nil {
		return fmt.Errorf("tofu %s of %s: %w: %s", arguments[0], w.scope, err, failure.text)
	}
	return nil
}

// shared serializes the writes of the two outputs of tofu.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

// tail keeps the last maxShown bytes that are written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - maxShown; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}
