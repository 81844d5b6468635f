package main

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// watchObjects calls observe for each event of a HyperShift resource on all management clusters, until stop is called.
func watchObjects(ctx context.Context, endpoints local.Endpoints, resource string, observe func(*unstructured.Unstructured)) (stop context.CancelFunc, err error) {
	ctx, stop = context.WithCancel(ctx)
	kind := schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: resource}
	for name, path := range endpoints.Kubeconfigs {
		if err := watchOn(ctx, path, kind, observe); err != nil {
			stop()
			return nil, fmt.Errorf("watching %s on %s: %w", resource, name, err)
		}
	}
	return stop, nil
}

func watchOn(ctx context.Context, kubeconfig string, kind schema.GroupVersionResource, observe func(*unstructured.Unstructured)) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	mgmtClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	watch, err := mgmtClient.Resource(kind).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	go func() {
		for event := range watch.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				observe(object)
			}
		}
	}()
	return nil
}
