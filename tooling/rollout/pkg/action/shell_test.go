package action

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func shell(t *testing.T, ctx context.Context, log io.Writer, with map[string]any) error {
	t.Helper()
	_, err := Shell{}.Run(ctx, Request{Step: "a/b", With: with, Root: t.TempDir(), Log: log})
	return err
}

// TestShellHasACleanEnvironment expects only the variables of the step and those that programs inherit.
func TestShellHasACleanEnvironment(t *testing.T) {
	t.Setenv("AZURE_CLIENT_SECRET", "hunter2")
	for _, name := range []string{"HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		t.Setenv(name, "inherited")
	}
	var log bytes.Buffer
	must.Do(t, shell(t, t.Context(), &log, map[string]any{"command": []string{"env"}, "environment": map[string]string{"REGION": "$HOME west"}}))
	names := map[string]bool{}
	for line := range strings.Lines(log.String()) {
		name, _, _ := strings.Cut(line, "=")
		names[name] = true
	}
	if len(names) != 7 || !names["PATH"] || !names["HOME"] || strings.Count(log.String(), "=inherited\n") != 4 || !strings.Contains(log.String(), "REGION=$HOME west\n") {
		t.Errorf("the environment is %s", log.String())
	}
}

// TestShellDoesNotInterpretArguments passes text that a shell would execute.
func TestShellDoesNotInterpretArguments(t *testing.T) {
	var log bytes.Buffer
	if err := shell(t, t.Context(), &log, map[string]any{"command": []string{"echo", "$(id); `id` > x"}}); err != nil || log.String() != "$(id); `id` > x\n" {
		t.Errorf("%v: %q", err, log.String())
	}
}

func TestShellErrors(t *testing.T) {
	for reason, c := range map[string]struct {
		command []string
		class   Class
		want    string
	}{
		"an unknown program": {[]string{"no-such-program"}, ClassFailed, "finding the program"},
		"an exit code":       {[]string{"sh", "-c", "echo first >&2; echo last >&2; exit 4"}, Unavailable, "sh: exit status 4: last"},
		"another exit code":  {[]string{"sh", "-c", "exit 5"}, ClassFailed, "sh: exit status 5"},
		"a signal":           {[]string{"sh", "-c", "kill -9 $$"}, ClassFailed, "sh: signal: killed"},
	} {
		err := shell(t, t.Context(), io.Discard, map[string]any{"command": c.command, "exitCodes": map[string]string{"4": "unavailable"}})
		if err == nil || !strings.Contains(err.Error(), c.want) || ClassOf(err) != c.class {
			t.Errorf("%s: %v, class %s", reason, err, ClassOf(err))
		}
	}
}

// TestTimeoutStopsThePrograms ends the context of a program that has started another one, and expects both to end: the other end of a
// named pipe, which both have open, is closed.
func TestTimeoutStopsThePrograms(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(fifo, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		done <- shell(t, ctx, io.Discard, map[string]any{"command": []string{"sh", "-c", "exec 3>$0; sleep 1000 & echo started >&3; wait", fifo}})
	}()
	pipe := must.Get(os.Open(fifo))(t)
	line := make([]byte, 8)
	must.Get(io.ReadFull(pipe, line))(t)
	cancel(context.DeadlineExceeded)
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) || ClassOf(err) != Timeout {
		t.Errorf("%v, class %s", err, ClassOf(err))
	}
	if rest, err := io.ReadAll(pipe); err != nil || len(rest) > 0 {
		t.Errorf("read %q, %v", rest, err)
	}
	_ = pipe.Close()
}
