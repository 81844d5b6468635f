package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// run executes the program in the repository and returns its output.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestPipelinesOfTheRepositoryAreValid(t *testing.T) {
	out, err := run(t, "check")
	if err != nil || !strings.Contains(out, "service groups with") {
		t.Errorf("%s: %v", out, err)
	}
}

func TestGraph(t *testing.T) {
	out := must.Get(run(t, "graph"))(t)
	for _, edge := range []string{`"global/infrastructure" -> "region/infrastructure"`, `"cluster-service/deploy" -> "backend/deploy"`, `"maestro-agent/deploy" -> "maestro-server/deploy"`} {
		if !strings.Contains(out, edge) {
			t.Errorf("no %s in\n%s", edge, out)
		}
	}
	if strings.Contains(out, `"global/infrastructure" -> "backend/deploy"`) {
		t.Error("the graph has a dependency that follows from others")
	}
}
