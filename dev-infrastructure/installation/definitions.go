package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Definitions returns the CustomResourceDefinition of the kind that charts use on all clusters, PodMonitor, from the source of its module.
// root is the root of the repository.
func Definitions(ctx context.Context, root string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	command.Dir, command.Env = filepath.Join(root, "tooling/third-party/crds"), append(os.Environ(), "GOFLAGS=-mod=mod")
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading the definition of PodMonitors: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"))
}
