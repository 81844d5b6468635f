package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/test/customer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// measureScaling changes the replicas of a node pool again and again. Both times begin when the request is sent.
func measureScaling(ctx context.Context, region *local.Region, o options, report *report) error {
	c, err := customer.New(ctx, region.Endpoints(), "22222222-0000-0000-0000-000000000005", "scaling")
	if err != nil {
		return err
	}
	const cluster, pool = "scaled", "workers"
	id := c.NodePoolID(cluster, pool)
	if err := c.PutQuickly(ctx, c.ClusterID(cluster), c.ClusterBody(cluster)); err != nil {
		return err
	}
	if err := c.PutQuickly(ctx, id, c.NodePoolBody(1)); err != nil {
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
		if err := c.PatchQuickly(ctx, id, body); err != nil {
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
	if err := c.DeleteQuickly(ctx, c.ClusterID(cluster)); err != nil {
		return err
	}
	report.durations("Replicas changed to NodePool spec changed", changed, "goal: p50 200ms")
	report.durations("Replicas changed to operation Succeeded", succeeded, "")
	return nil
}

// replicas tells when a NodePool's spec asks for a number of nodes.
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

func (r *replicas) saw(asked int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != nil && asked == r.wanted {
		r.seen <- now
		r.seen = nil
	}
}

// watchReplicas watches the NodePool of an ARM resource, on whichever management cluster it is.
func watchReplicas(ctx context.Context, endpoints local.Endpoints, id string) (*replicas, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &replicas{stop: stop}
	kind := schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"}
	for name, path := range endpoints.Kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			stop()
			return nil, err
		}
		mgmtClient, err := dynamic.NewForConfig(config)
		if err != nil {
			stop()
			return nil, err
		}
		watch, err := mgmtClient.Resource(kind).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			stop()
			return nil, errors.Join(fmt.Errorf("watching the NodePools of %v", name), err)
		}
		go func() {
			for event := range watch.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if !ok || !strings.EqualFold(object.GetAnnotations()["azure.microsoft.com/node-pool-azure-resource-id"], id) {
					continue
				}
				if asked, found, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); found {
					r.saw(asked)
				}
			}
		}()
	}
	return r, nil
}
