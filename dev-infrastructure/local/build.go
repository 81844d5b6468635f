package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mains holds the folders of our programs in the checkout, by name.
var mains = map[string]string{
	"admin":              "admin/cmd/admin",
	"arm-frontdoor":      "tooling/arm-frontdoor/cmd/arm-frontdoor",
	"azure-emulator":     "tooling/azure-emulator/cmd/azure-emulator",
	"backend":            "backend/cmd/backend",
	"cluster-service":    "cluster-service/cmd/cluster-service",
	"cosmos-emulator":    "tooling/cosmos-emulator/cmd/cosmos-emulator",
	"egress-proxy":       "hypershift/cmd/egress-proxy",
	"eventgrid-emulator": "tooling/eventgrid-emulator/cmd/eventgrid-emulator",
	"gateway-access":     "gateway/cmd/gateway-access",
	"gateway-egress":     "gateway/cmd/gateway-egress",
	"gateway-grants":     "gateway/cmd/gateway-grants",
	"gateway-tunnel":     "gateway/cmd/gateway-tunnel",
	"frontend":           "frontend/cmd/frontend",
	"hypershift-runtime": "hypershift/cmd/hypershift-runtime",
	"log-forwarder":      "hypershift/cmd/log-forwarder",
	"maestro-agent":      "maestro/cmd/maestro-agent",
	"maestro-server":     "maestro/cmd/maestro-server",
	"management-audit":   "tooling/management-audit/cmd/management-audit",
	"monitor":            "monitor/cmd/monitor",
	"monitor-inside":     "monitor/cmd/monitor-inside",
	"trace-store":        "tooling/trace-store/cmd/trace-store",
	"update-graph":       "tooling/update-graph/cmd/update-graph",
}

// build builds all programs: the third-party ones, which are built once for their pins, and ours, for which Go's build
// cache makes an unchanged one cheap.
func (r *Region) build(ctx context.Context) error {
	r.config.OnNote("building missing programs")
	if err := r.runInSource(ctx, filepath.Join(r.config.SourceDir, "tooling", "third-party", "build.sh")); err != nil {
		return fmt.Errorf("building the third-party programs: %w", err)
	}
	arguments := []string{"build", "-o", r.binDir() + string(filepath.Separator)}
	if r.racing {
		arguments = append(arguments, "-race")
	}
	for _, folder := range mains {
		arguments = append(arguments, "./"+folder)
	}
	if err := os.MkdirAll(r.binDir(), 0o755); err != nil {
		return err
	}
	if err := r.runInSource(ctx, "go", arguments...); err != nil {
		return fmt.Errorf("building the services: %w", err)
	}
	return nil
}

func (r *Region) runInSource(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = r.config.SourceDir
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if text := strings.TrimSpace(string(bytes.TrimSpace(output))); text != "" {
		return fmt.Errorf("%w:\n%s", err, text)
	}
	return err
}

// binDir returns the folder of our programs.
func (r *Region) binDir() string {
	if r.racing {
		return filepath.Join(r.config.SourceDir, ".build", "race")
	}
	return filepath.Join(r.config.SourceDir, ".build", "bin")
}

// program returns the path of one of our programs.
func (r *Region) program(name string) string { return filepath.Join(r.binDir(), name) }

func (r *Region) thirdParty(parts ...string) string {
	return filepath.Join(append([]string{r.config.SourceDir, ".build", "third-party"}, parts...)...)
}
