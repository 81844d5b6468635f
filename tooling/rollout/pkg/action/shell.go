package action

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
	"strconv"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// Shell runs a program with arguments, without a shell. The program gets the environment variables of the step, those of inherited, and the
// checkout as its working directory. If the step has outputs, the program writes them to standard output as a JSON object of strings.
type Shell struct{}

type shellParameters struct {
	Command         []string          `json:"command"`
	RollbackCommand []string          `json:"rollbackCommand"`
	DeletionCommand []string          `json:"deletionCommand"`
	Environment     map[string]string `json:"environment"`
	ExitCodes       map[string]Class  `json:"exitCodes"`
}

// Run runs the command of the step.
func (Shell) Run(ctx context.Context, r Request) (map[string]string, error) {
	var with shellParameters
	if err := Decode(r, &with); err != nil {
		return nil, err
	}
	out := &limited{limit: maxOutput}
	var standardOutput io.Writer = r.Log
	if len(r.Outputs) > 0 {
		standardOutput = out
	}
	if err := runCommand(ctx, r, with.Command, with, standardOutput); err != nil || len(r.Outputs) == 0 {
		return nil, err
	}
	outputs := map[string]string{}
	if out.cut {
		return nil, fmt.Errorf("%s: standard output has more than %d bytes; it must be the outputs", with.Command[0], maxOutput)
	}
	if err := json.Unmarshal(out.text.Bytes(), &outputs); err != nil {
		return nil, fmt.Errorf("%s: standard output is not a JSON object of strings with the outputs %s", with.Command[0], strings.Join(r.Outputs, ", "))
	}
	return outputs, nil
}

// Rollback runs the command for rollbacks.
func (Shell) Rollback(ctx context.Context, r Request) error {
	var with shellParameters
	if err := Decode(r, &with); err != nil {
		return err
	}
	return runCommand(ctx, r, with.RollbackCommand, with, r.Log)
}

// Delete runs the command for deletions. A step without one has nothing to delete.
func (Shell) Delete(ctx context.Context, r Request) error {
	var with shellParameters
	if err := Decode(r, &with); err != nil || len(with.DeletionCommand) == 0 {
		return err
	}
	return runCommand(ctx, r, with.DeletionCommand, with, r.Log)
}

// PreviewDeletion writes the command for deletions.
func (Shell) PreviewDeletion(_ context.Context, r Request, out io.Writer) error {
	var with shellParameters
	if err := Decode(r, &with); err != nil || len(with.DeletionCommand) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "run %q\n", with.DeletionCommand)
	return err
}

// runCommand runs a command until it ends or the context does. The last line of its standard error becomes part of the error.
func runCommand(ctx context.Context, r Request, command []string, with shellParameters, out io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	program, err := programOf(r.Root, command[0])
	if err != nil {
		return err
	}
	last := &lastLine{}
	child := exec.Command(program, command[1:]...)
	child.Dir, child.Stdout, child.Stderr = r.Root, out, io.MultiWriter(r.Log, last)
	child.Env = []string{} // nil would be the environment of this process
	for _, name := range inherited() {
		if value, ok := os.LookupEnv(name); ok {
			child.Env = append(child.Env, name+"="+value)
		}
	}
	for name, value := range with.Environment {
		child.Env = append(child.Env, name+"="+value)
	}
	process, err := spawn.Start(child, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}
	select {
	case <-process.Exited():
		_ = syscall.Kill(-process.PID(), syscall.SIGKILL) // what the program left in its process group
		return exitError(command[0], process.Err(), with.ExitCodes, last)
	case <-ctx.Done():
	}
	// The group, because the program may have started others.
	_ = syscall.Kill(-process.PID(), syscall.SIGKILL)
	<-process.Exited()
	return fmt.Errorf("%s was stopped: %w", command[0], context.Cause(ctx))
}

// inherited returns the names of the environment variables that programs get from the rollout: where programs and the files of the user are, and
// how the machine connects to others.
func inherited() []string {
	return []string{"PATH", "HOME", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}
}

// programOf returns the path of a program: a name is searched in PATH, a relative path starts at the root of the checkout.
func programOf(root, name string) (string, error) {
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(root, filepath.FromSlash(name))
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("finding the program: %w", err)
	}
	return program, nil
}

func exitError(name string, err error, classes map[string]Class, last *lastLine) error {
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("running %s: %w", name, err)
	}
	wrapped := fmt.Errorf("%s: %w", name, err)
	if text := last.String(); text != "" {
		wrapped = fmt.Errorf("%s: %w: %s", name, err, text)
	}
	if class := classes[strconv.Itoa(exit.ExitCode())]; class != "" {
		return &Error{class, wrapped}
	}
	return wrapped
}

// maxOutput is the largest standard output with outputs.
const maxOutput = 1 << 20

// limited keeps the first bytes of what is written.
type limited struct {
	text  bytes.Buffer
	limit int
	cut   bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := l.limit - l.text.Len()
	l.cut = l.cut || len(p) > room
	l.text.Write(p[:min(len(p), room)])
	return len(p), nil
}

// lastLine keeps the last line that is not empty, and at most its first 400 bytes.
type lastLine struct {
	current, last []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b != '\n' && len(l.current) < 400:
			l.current = append(l.current, b)
		case b == '\n' && len(bytes.TrimSpace(l.current)) > 0:
			l.last, l.current = l.current, nil
		case b == '\n':
			l.current = nil
		}
	}
	return len(p), nil
}

func (l *lastLine) String() string {
	if len(bytes.TrimSpace(l.current)) > 0 {
		return string(bytes.TrimSpace(l.current))
	}
	return string(bytes.TrimSpace(l.last))
}
