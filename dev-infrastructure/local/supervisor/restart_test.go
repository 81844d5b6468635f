package supervisor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestReplacedProgramIsKept checks that a process terminates gracefully before it runs another program, and that its later starts use that
// program too.
func TestReplacedProgramIsKept(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	script := func(version string) string {
		return `cd ` + dir + `; trap 'echo -` + version + ` >>order; exit 0' TERM; echo +` + version + ` >>order; echo ` + version + ` >running.part; mv running.part running; while :; do sleep 0.02; done`
	}
	running := func(version string) func(context.Context) error {
		return func(context.Context) error {
			data, err := os.ReadFile(filepath.Join(dir, "running"))
			if err == nil && strings.TrimSpace(string(data)) != version {
				err = os.ErrNotExist
			}
			return err
		}
	}
	spec := shell("service", script("old"))
	spec.Ready = exists(filepath.Join(dir, "running"))
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(ctx))
	must.Do(t, os.Remove(filepath.Join(dir, "running")))
	shellPath := must.Get(exec.LookPath("sh"))(t)
	must.Do(t, s.Replace(ctx, "service", Program{Path: shellPath, Args: []string{"-c", script("new")}}))
	if err := running("new")(ctx); err != nil {
		t.Error("Replace returned before the new program was ready")
	}
	if status := s.Status()[0]; status.Program != shellPath || status.State != Ready || status.Restarts != 1 {
		t.Errorf("after Replace: %+v", status)
	}
	must.Do(t, s.Kill(ctx, "service"))
	until(t, "the new program to start again", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "order"))
		return string(data) == "+old\n-old\n+new\n+new\n"
	})
	if err := s.Replace(ctx, "missing", Program{}); err == nil {
		t.Error("the program of an unknown process was replaced")
	}
	s.Stop()
	if err := s.Replace(ctx, "service", Program{}); err == nil {
		t.Error("the program of a stopped process was replaced")
	}
}

func TestLaunchedProcessIsNotReplaced(t *testing.T) {
	s := newSupervisor(t, Spec{Name: "database", Launch: func(context.Context, *os.File) (Running, error) { return nil, os.ErrInvalid }})
	if err := s.Replace(testContext(t), "database", Program{Path: "/bin/true"}); err == nil || !strings.Contains(err.Error(), "database has no program") {
		t.Errorf("got %v", err)
	}
}
