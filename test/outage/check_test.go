package outage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// try makes a component unavailable, checks all explanations, and checks that all operations succeed after the outage. It calls
// recovered at the end.
func (r *region) try(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind, recovered func()) {
	t.Helper()
	r.created++
	next := fmt.Sprintf("old-%d", r.created)
	var begun map[string]*operation
	begin := func() {
		begun = must.Get(r.begin(ctx, c, next))(t)
	}
	// Requests are accepted before the fault or, if they can be, while a component hangs.
	during := k == fault.Hung && !c.Stored && c.Process != ""
	if !during {
		begin()
	}
	end := sync.OnceFunc(r.inject(t, ctx, c, k))
	defer end()
	if during {
		begin()
	}
	if c.OfShard && begun[create] != nil {
		eventually.Soon(t, next+" is placed", func() error {
			cluster, err := adminclient.Get(ctx, r.sre, adminv1.ReadCluster, nil, r.customer.ClusterID(next))
			if err == nil && cluster.ProvisionShard == "" {
				err = errors.New("it is not")
			}
			return err
		})
	}
	r.awaitEffect(t, ctx, c, k)
	r.checkAll(t, ctx, c, k, begun)
	explained := time.Now()
	end()
	if c.Process != "" {
		must.Do(t, r.AwaitReady(ctx, c.Process))
	}
	for name, o := range begun {
		eventually.Soon(t, "the operation "+name+" succeeds", func() error {
			read, err := r.read(ctx, o)
			switch {
			case err != nil:
				return err
			case read.Status != "Succeeded":
				return errors.New(read.Status)
			case read.EndTime == nil || read.EndTime.Before(explained):
				t.Errorf("the operation %s was not in flight: it ended at %v, and the explanations were complete at %s", name, read.EndTime, explained)
			}
			return nil
		})
	}
	for _, name := range []string{quiet, update, scaling} {
		r.awaitCode(t, ctx, name, adminv1.ExplanationReady)
	}
	if begun[create] != nil {
		r.awaitCode(t, ctx, next, adminv1.ExplanationReady)
		r.awaitCode(t, ctx, r.old, adminv1.ExplanationDeleted)
		r.old = next
	}
	recovered()
}

// awaitCode waits until the explanation of a cluster has a code.
func (r *region) awaitCode(t *testing.T, ctx context.Context, name, code string) {
	t.Helper()
	eventually.Soon(t, "after the outage "+name+" is "+code, func() error {
		explained, err := adminclient.Get(ctx, r.sre, adminv1.ReadExplanation, nil, r.customer.ClusterID(name))
		if err == nil && explained.Items[0].Code != code {
			err = fmt.Errorf("%s", explained.Text())
		}
		return err
	})
}

// checkAll requests and checks the explanations of the region and of the cluster of each operation, all at the same time. On a busy machine
// admin may not respond, or another component may not respond to admin in time, so it requests the explanations that are not right again. A test
// of admin checks for how long admin waits.
func (r *region) checkAll(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind, begun map[string]*operation) {
	t.Helper()
	var pending []string
	for _, name := range operations {
		switch reason := omittedFor(c, name); {
		case reason != "":
			r.results.add(c, k, name, "not tested: "+reason, 0)
		case name != theMetric:
			pending = append(pending, name)
		}
	}
	checkPending := func() error {
		failed := make([]error, len(pending))
		var checks sync.WaitGroup
		for i, name := range pending {
			checks.Go(func() { failed[i] = r.checkExplanation(t, ctx, c, k, name, begun[name]) })
		}
		checks.Wait()
		var wrong []string
		for i, name := range pending {
			if failed[i] != nil {
				wrong = append(wrong, name)
			}
		}
		pending = wrong
		return errors.Join(failed...)
	}
	eventually.Soon(t, "all explanations name "+c.Layer, checkPending)
	if omittedFor(c, theMetric) == "" {
		r.checkMetric(t, ctx, c, k)
	}
}

// checkExplanation requests and checks the explanation of the region or of the cluster of an operation, which is nil for a cluster without one.
func (r *region) checkExplanation(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind, name string, o *operation) error {
	cluster := quiet
	if o != nil {
		cluster = o.cluster
	}
	asked := time.Now()
	items, text, err := r.explain(ctx, name, cluster)
	took := time.Since(asked)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := blameless(items); err != nil {
		t.Errorf("%s: %v:\n%s", name, err, text)
	}
	if err := named(items, c, k); err != nil {
		return fmt.Errorf("%s: %w:\n%s", name, err, text)
	}
	r.results.add(c, k, name, fmt.Sprintf("%s %s %s %s", items[0].Code, items[0].Layer, items[0].State, items[0].Responsible), took)
	return nil
}

// checkMetric checks that admin exports the outage of a layer, and no other one. Every explanation updates the metrics.
func (r *region) checkMetric(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind) {
	t.Helper()
	asked := time.Now()
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Endpoints().Ops["admin"]+"/metrics", nil))(t)
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	text := must.Get(io.ReadAll(response.Body))(t)
	var outages []string
	for line := range strings.Lines(string(text)) {
		if series, active := strings.CutSuffix(line, " 1\n"); active && strings.HasPrefix(series, "admin_layer_outage{") {
			outages = append(outages, series)
		}
	}
	r.results.add(c, k, theMetric, strings.Join(outages, " "), time.Since(asked))
	if want := fmt.Sprintf("admin_layer_outage{layer=%q,shard=%q}", c.Away().Labels["layer"], c.Away().Labels["shard"]); !slices.Equal(outages, []string{want}) {
		t.Errorf("the metrics have the outages %q, want %s", outages, want)
	}
}

// explain returns the explanation of the region or of a cluster.
func (r *region) explain(ctx context.Context, name, cluster string) (items []adminv1.ExplanationItem, text string, err error) {
	if name == theRegion {
		explained, err := adminclient.Get(ctx, r.sre, adminv1.ReadRegionExplanation, nil)
		if err != nil {
			return nil, "", err
		}
		return explained.Items, explained.Text(), nil
	}
	explained, err := adminclient.Get(ctx, r.sre, adminv1.ReadExplanation, nil, r.customer.ClusterID(cluster))
	if err != nil {
		return nil, "", err
	}
	return explained.Items, explained.Text(), nil
}

// named returns an error unless the first item names the component.
func named(items []adminv1.ExplanationItem, c fault.Component, k fault.Kind) error {
	first := items[0]
	if first.Code != adminv1.ExplanationLayerAway || first.Layer != c.Layer || !slices.Contains(c.States(k), adminv1.ComponentState(first.State)) || first.Responsible != adminv1.PartySRE {
		return fmt.Errorf("%s is %s, but the explanation is %s %s %s, responsible %s", c.Layer, k, first.Code, first.Layer, first.State, first.Responsible)
	}
	return nil
}

// blameless returns an error unless every fact about a component or from before the outage has its time, and no item asks the customer or
// Azure to act or calls anything ready.
func blameless(items []adminv1.ExplanationItem) error {
	for _, item := range items {
		if item.Responsible == adminv1.PartyCustomer || item.Responsible == adminv1.PartyAzure || item.Code == adminv1.ExplanationReady || item.Code == adminv1.ExplanationRegionReady {
			return fmt.Errorf("%s is responsible for %s", item.Responsible, item.Code)
		}
		for _, s := range item.Evidence {
			switch s.Code {
			case adminv1.SentenceComponentState, adminv1.SentenceLastKnown, adminv1.SentenceHeartbeat:
				if s.Time.IsZero() {
					return fmt.Errorf("the fact %q has no time", s.Text)
				}
			}
		}
	}
	return nil
}
