package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// upgradesAtOnce is the concurrency limit of the measured policy.
const upgradesAtOnce = 50

// policyName is the name of the measured policy.
const policyName = "bench"

// laterReleases are added to the catalogue while the fleet runs.
var laterReleases = []string{"4.21.4", "4.21.6"}

// writeCatalogue writes the built-in catalogue without the given releases. Upgrade paths follow from the versions.
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

// measureUpgrades adds a release to the catalogue and measures the upgrade of the whole fleet by a policy.
func measureUpgrades(ctx context.Context, region *local.Region, o options, report *report) error {
	if err := writeCatalogue(o.catalogue); err != nil {
		return err
	}
	// These processes read the catalogue at start. The update graph watches the file.
	for _, process := range region.Processes() {
		if strings.HasSuffix(process, "-hypershift-runtime") || process == "cluster-service" {
			if err := region.Restart(ctx, process); err != nil {
				return fmt.Errorf("restarting %s: %w", process, err)
			}
		}
	}
	engineer, err := customer.NewEngineer(region.Endpoints(), "")
	if err != nil {
		return err
	}
	elevation, err := engineer.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "measuring fleet upgrades", Ticket: "BENCH", Duration: "1h"})
	if err != nil {
		return err
	}
	began := time.Now()
	operation, err := engineer.Act(ctx, adminv1.ActionUpgradePolicyApply, &csv1.ApplyUpgradePolicyRequest{Spec: &csv1.UpgradePolicySpec{MaxConcurrent: upgradesAtOnce}}, policyName)
	if err != nil {
		return err
	}
	if _, err := engineer.Await(ctx, operation); err != nil {
		return err
	}
	if _, err := engineer.EndElevation(ctx, elevation.ID); err != nil {
		return err
	}
	for {
		policy, err := adminclient.Get(ctx, engineer, adminv1.ReadUpgradePolicy, nil, policyName)
		if err != nil {
			return err
		}
		s := policy.Of.GetStatus()
		if s.GetRunning() == 0 && s.GetRemaining() == 0 {
			upgrades, _, err := adminclient.List(ctx, engineer, adminv1.ReadUpgrades, nil, math.MaxInt)
			if err != nil {
				return err
			}
			// Before Cluster Service has read the update graph, the policy has nothing to upgrade.
			if took, most := summarize(adminv1.Contents(upgrades)); took > 0 {
				report.line(fmt.Sprintf("%d clusters to a new patch release by policy, %d at a time", o.clusters, upgradesAtOnce),
					fmt.Sprintf("after %s, at most %d at once", round(took), most), fmt.Sprintf("goal: never over %d, none left behind", upgradesAtOnce))
				// The policy applies to the whole region, which can contain clusters of earlier parts.
				if int(s.GetUpToDate()) < o.clusters || len(s.GetLeftOut()) > 0 || most > upgradesAtOnce {
					return fmt.Errorf("%d of %d clusters are up to date, at most %d upgrades ran at once, left out: %v", s.GetUpToDate(), o.clusters, most, s.GetLeftOut())
				}
				return nil
			}
		}
		if time.Since(began) > 20*time.Minute {
			return fmt.Errorf("the policy has not finished: %v", s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// summarize returns the time from the start of the first upgrade of the policy to the end of the last one, and the maximum number
// of concurrent upgrades. It uses the recorded times, so it does not depend on when it polls.
func summarize(upgrades []*csv1.Upgrade) (took time.Duration, most int) {
	type change struct {
		at    time.Time
		delta int
	}
	var changes []change
	for _, u := range upgrades {
		if u.GetSpec().GetPolicy() == policyName && u.GetStatus().GetCompletionTime() != nil {
			changes = append(changes, change{u.GetCreateTime().AsTime(), 1}, change{u.GetStatus().GetCompletionTime().AsTime(), -1})
		}
	}
	if len(changes) == 0 {
		return 0, 0
	}
	// At equal times, an end comes before a start.
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.delta-b.delta) })
	running := 0
	for _, c := range changes {
		running += c.delta
		most = max(most, running)
	}
	return changes[len(changes)-1].at.Sub(changes[0].at), most
}
