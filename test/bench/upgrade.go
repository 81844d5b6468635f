package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// upgradesAtOnce is the limit of the policy that is measured.
const upgradesAtOnce = 50

// policyName is its name.
const policyName = "bench"

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
	e := region.Endpoints()
	engineer, err := adminclient.New(adminclient.Options{
		Endpoint: e.Admin, Authority: e.ARM, CAFile: e.CAFile, CredentialsFile: e.EngineersFile, Audience: e.AdminAudience,
	})
	if err != nil {
		return err
	}
	elevation, err := engineer.Elevate(ctx, adminv1.ElevationRequest{Role: adminv1.Operator, Reason: "upgrades of a fleet are measured", Ticket: "BENCH", Duration: "1h"})
	if err != nil {
		return err
	}
	began := time.Now()
	operation, err := engineer.ApplyUpgradePolicy(ctx, policyName, &csv1.UpgradePolicySpec{MaxConcurrent: upgradesAtOnce})
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
		policy, err := engineer.UpgradePolicy(ctx, policyName)
		if err != nil {
			return err
		}
		s := policy.GetStatus()
		if s.GetRunning() == 0 && s.GetRemaining() == 0 {
			upgrades, err := engineer.Upgrades(ctx, false)
			if err != nil {
				return err
			}
			// Until the graph is known there is nothing to do, and nothing was done.
			if took, most := course(upgrades); took > 0 {
				report.line(fmt.Sprintf("%d clusters to a new patch release by policy, %d at a time", o.clusters, upgradesAtOnce),
					fmt.Sprintf("after %s, at most %d at once", round(took), most), fmt.Sprintf("goal: never over %d, none left behind", upgradesAtOnce))
				// The policy is for the whole region, where the parts before may have left a cluster.
				if int(s.GetUpToDate()) < o.clusters || len(s.GetLeftOut()) > 0 || most > upgradesAtOnce {
					return fmt.Errorf("%d of %d clusters are up to date, at most %d were upgraded at once: %v", s.GetUpToDate(), o.clusters, most, s.GetLeftOut())
				}
				return nil
			}
		}
		if time.Since(began) > 20*time.Minute {
			return fmt.Errorf("the policy stands at %v", s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// course says how long the upgrades of the policy took together, from the beginning of the first to the end of the last, and how
// many were under way at once at most. It follows from their records, so that nothing between two looks is missed.
func course(upgrades []*csv1.Upgrade) (took time.Duration, most int) {
	type turn struct {
		at   time.Time
		more int
	}
	var turns []turn
	for _, u := range upgrades {
		if u.GetSpec().GetPolicy() == policyName && u.GetStatus().GetCompletionTime() != nil {
			turns = append(turns, turn{u.GetCreateTime().AsTime(), 1}, turn{u.GetStatus().GetCompletionTime().AsTime(), -1})
		}
	}
	if len(turns) == 0 {
		return 0, 0
	}
	// One that ends makes room for one that begins.
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), a.more-b.more) })
	running := 0
	for _, t := range turns {
		running += t.more
		most = max(most, running)
	}
	return turns[len(turns)-1].at.Sub(turns[0].at), most
}
