package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// measureScaling changes the replicas of a node pool repeatedly. All times begin when the request is sent.
func measureScaling(ctx context.Context, region *local.Region, o options, report *report) error {
	c, err := customer.New(ctx, region.Endpoints(), "22222222-0000-0000-0000-000000000005", "scaling")
	if err != nil {
		return err
	}
	c.FastPolling = true
	const cluster, pool = "scaled", "workers"
	id := c.NodePoolID(cluster, pool)
	if _, err := c.Put(ctx, c.ClusterID(cluster), c.ClusterBody(cluster)); err != nil {
		return err
	}
	if _, err := c.Put(ctx, id, c.NodePoolBody(1)); err != nil {
		return err
	}
	sizes, err := watchReplicas(ctx, region.Endpoints(), id)
	if err != nil {
		return err
	}
	defer sizes.stop()
	var changed, succeeded []time.Duration
	for i := range o.runs {
		replicas := int64(2 + i%2)
		seen := sizes.expect(replicas)
		sent := time.Now()
		body := armresources.GenericResource{Properties: map[string]any{"replicas": replicas}}
		if _, err := c.Patch(ctx, id, body); err != nil {
			return err
		}
		succeeded = append(succeeded, time.Since(sent))
		select {
		case at := <-seen:
			changed = append(changed, at.Sub(sent))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := c.Delete(ctx, c.ClusterID(cluster)); err != nil {
		return err
	}
	report.durations("Replicas changed to NodePool spec changed", changed, "goal: p50 200ms")
	report.durations("Replicas changed to operation Succeeded", succeeded, "")
	return nil
}

// replicas observes when the spec of a NodePool has a number of replicas.
type replicas struct {
	stop context.CancelFunc

	mu     sync.Mutex
	wanted int64
	seen   chan time.Time
}

func (r *replicas) expect(wanted int64) <-chan time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted, r.seen = wanted, make(chan time.Time, 1)
	return r.seen
}

func (r *replicas) observe(count int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != nil && count == r.wanted {
		r.seen <- now
		r.seen = nil
	}
}

// watchReplicas watches the NodePool of an ARM resource on all management clusters.
func watchReplicas(ctx context.Context, endpoints local.Endpoints, id string) (*replicas, error) {
	r := &replicas{}
	stop, err := watchObjects(ctx, endpoints, "nodepools", func(object *unstructured.Unstructured) {
		if !strings.EqualFold(object.GetAnnotations()[managementcluster.AnnotationNodePoolResourceID], id) {
			return
		}
		if count, found, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); found {
			r.observe(count)
		}
	})
	r.stop = stop
	return r, err
}
