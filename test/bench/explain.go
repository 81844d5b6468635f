package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// explanations is the number of clusters that are explained, one after the other.
const explanations = 40

// measureExplain measures whole runs of `hcpctl explain NAME` for clusters of the fleet.
func measureExplain(ctx context.Context, region *local.Region, o options, report *report) error {
	dir, err := os.MkdirTemp("", "hcpmesh-bench-hcpctl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hcpctl := filepath.Join(dir, "hcpctl")
	build := exec.CommandContext(ctx, "go", "build", "-o", hcpctl, "github.com/hcpmesh/hcpmesh/tooling/hcpctl/cmd/hcpctl")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building hcpctl: %w: %s", err, bytes.TrimSpace(output))
	}
	var took []time.Duration
	for i := range explanations {
		name := fmt.Sprintf("fleet-%04d", i*o.clusters/explanations)
		command := exec.CommandContext(ctx, hcpctl, "explain", name, "--state-dir", filepath.Dir(region.LogDir()))
		began := time.Now()
		output, err := command.CombinedOutput()
		took = append(took, time.Since(began))
		if err != nil || !strings.Contains(string(output), "Cluster "+name+" is ready.") {
			return fmt.Errorf("explaining %s: %v: %s", name, err, bytes.TrimSpace(output))
		}
	}
	report.durations(fmt.Sprintf("hcpctl explain, by name among %d clusters", o.clusters), took, "goal: 300ms")
	return nil
}
