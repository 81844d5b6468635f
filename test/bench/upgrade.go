package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/fleetclient"
)

// upgradesAtOnce is the limit of the policy that is measured.
const upgradesAtOnce = 50

// laterReleases come out while the fleet runs.
var laterReleases = []string{"4.21.4", "4.21.6"}

// writeCatalogue writes the built-in catalogue without some releases. Ways are those that follow from the versions.
func writeCatalogue(path string, without ...string) error {
	catalogue, err := release.Default()
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("repository: quay.io/openshift-release-dev/ocp-release\nminors:\n")
	var minors []string
	for _, r := range catalogue.Releases() {
		if minor := r.Version.MinorID(); !slices.Contains(minors, minor) {
			minors = append(minors, minor)
			fmt.Fprintf(&text, "- {version: '%s', endOfLife: %s}\n", minor, catalogue.EndOfLife(minor).Format(time.RFC3339))
		}
	}
	text.WriteString("releases:\n")
	for _, r := range catalogue.Releases() {
		if !slices.Contains(without, r.Version.String()) {
			fmt.Fprintf(&text, "- {version: %s, digest: '%s', kubelet: %s, architecture: %s, channels: [%s]}\n", r.Version, r.Digest, r.Kubelet, r.Architecture, strings.Join(r.Channels, ", "))
		}
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// measureUpgrades has a release come out and a policy bring it to the whole fleet.
func measureUpgrades(ctx context.Context, region *local.Region, o options, report *report) error {
	if err := writeCatalogue(o.catalogue); err != nil {
		return err
	}
	// They read the catalogue when they start; the update graph follows the file.
	for _, process := range region.Processes() {
		if strings.HasSuffix(process, "-hypershift-runtime") || process == "cluster-service" {
			if err := region.Restart(ctx, process); err != nil {
				return fmt.Errorf("restarting %s: %w", process, err)
			}
		}
	}
	endpoints := region.Endpoints()
	clusterService, err := fleetclient.New(endpoints.ClusterService, endpoints.Identities["hcpctl"])
	if err != nil {
		return err
	}
	defer clusterService.Close()
	began := time.Now()
	if _, err := clusterService.ApplyUpgradePolicy(ctx, &csv1.ApplyUpgradePolicyRequest{Name: "bench", Actor: &csv1.Actor{Name: "bench", Reason: "it is measured"},
		Spec: &csv1.UpgradePolicySpec{MaxConcurrent: upgradesAtOnce}}); err != nil {
		return err
	}
	most, first := int32(0), time.Time{}
	for {
		policy, err := clusterService.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: "bench"})
		if err != nil {
			return err
		}
		s := policy.GetStatus()
		if most = max(most, s.GetRunning()); first.IsZero() && s.GetRunning() > 0 {
			first = time.Now() // the graph is known from here on
		}
		if !first.IsZero() && s.GetRunning() == 0 && s.GetRemaining() == 0 {
			report.line(fmt.Sprintf("%d clusters to a new patch release by policy, %d at a time", o.clusters, upgradesAtOnce),
				fmt.Sprintf("after %s, at most %d at once", round(time.Since(first)), most), fmt.Sprintf("goal: never over %d, none left behind", upgradesAtOnce))
			// The policy is for the whole region, where the parts before may have left a cluster.
			if int(s.GetUpToDate()) < o.clusters || len(s.GetLeftOut()) > 0 || most > upgradesAtOnce {
				return fmt.Errorf("%d of %d clusters are up to date, at most %d were upgraded at once: %v", s.GetUpToDate(), o.clusters, most, s.GetLeftOut())
			}
			return nil
		}
		if time.Since(began) > 20*time.Minute {
			return fmt.Errorf("the policy stands at %v", s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
