package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// checkTimeline changes a cluster that was created, dumped, paused and resumed, and checks that its timeline has all of that in order.
func checkTimeline(t *testing.T, ctx context.Context, c *customer.Customer, reader *adminclient.Client, id string) {
	t.Helper()
	created := time.Now()
	body := c.ClusterBody("paused")
	body.Properties.(map[string]any)["nodeDrainTimeoutMinutes"] = 7
	must.Get(c.Put(ctx, id, body))(t)
	var timeline *adminv1.Timeline
	eventually.Before(ctx, t, "the timeline has the end of the update", func() (err error) {
		if timeline, err = adminclient.Get(ctx, reader, adminv1.ReadTimeline, nil, id); err != nil {
			return err
		}
		for _, e := range timeline.Entries {
			if e.Kind == adminv1.TimelineOperation && strings.Contains(e.Summary, "request Update ended: Succeeded") {
				return nil
			}
		}
		return fmt.Errorf("the timeline is %+v", timeline.Entries)
	})
	if timeline.Partial {
		t.Errorf("the timeline lacks %v", timeline.Unavailable)
	}
	if !slices.IsSortedFunc(timeline.Entries, func(a, b adminv1.TimelineEntry) int { return a.Time.Compare(b.Time) }) {
		t.Error("the entries are not in order of time")
	}
	rest := timeline.Entries
	for _, want := range []struct{ kind, text string }{
		{"Operation", "request Create ended: Succeeded"},
		{"DesiredState", "accepted generation 1."},
		{"Phase", "from Installing to Ready."},
		{"Action", adminv1.ActionClusterPause},
		{"Action", adminv1.ActionClusterResume},
		{"DesiredState", "accepted generation 2, which changes nodeDrainTimeout from no value to \"420s\"."},
	} {
		i := slices.IndexFunc(rest, func(e adminv1.TimelineEntry) bool {
			return string(e.Kind) == want.kind && strings.Contains(e.Summary, want.text)
		})
		if i < 0 {
			t.Errorf("no %s with %q follows in %+v", want.kind, want.text, rest)
			continue
		}
		rest = rest[i+1:]
	}
	for kind, want := range map[adminv1.TimelineKind]string{
		adminv1.TimelineCondition: "The condition Available",
		adminv1.TimelineAccess:    "The request clusters.dump succeeded.",
	} {
		if !slices.ContainsFunc(timeline.Entries, func(e adminv1.TimelineEntry) bool { return e.Kind == kind && strings.Contains(e.Summary, want) }) {
			t.Errorf("the timeline has no %s with %q", kind, want)
		}
	}
	since := must.Get(adminclient.Get(ctx, reader, adminv1.ReadTimeline, adminclient.Query{"from": created}, id))(t)
	want := []adminv1.TimelineDifference{{FromGeneration: 1, ToGeneration: 2, Fields: []adminv1.FieldDifference{{Path: "nodeDrainTimeout", After: `"420s"`}}}}
	if diff := cmp.Diff(want, since.DesiredState); diff != "" {
		t.Errorf("the desired states differ by -want +got:\n%s", diff)
	}
}
