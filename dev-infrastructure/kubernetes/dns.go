package kubernetes

import (
	"context"
	_ "embed" // the manifest
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

const (
	corednsProgram = "coredns"
	corednsImage   = "images.local/coredns:1"
	corednsLabel   = "k8s-app=kube-dns"
	corednsSpace   = "kube-system"
	// maxDNSPods is the largest number of pods of the DNS, as many as AKS has at least.
	maxDNSPods = 2
)

//go:embed files/coredns.yaml
var corednsManifest string

// installDNS applies the objects of CoreDNS.
func (c *Cluster) installDNS(ctx context.Context) error {
	parsed, err := template.New("coredns.yaml").Option("missingkey=error").Parse(corednsManifest)
	if err != nil {
		return err
	}
	var hosts []string
	zones := map[string]string{}
	for index, name := range c.options.Hosts {
		if zone, isZone := strings.CutPrefix(name, "*."); isZone {
			zones[zone] = hostIP(index)
			continue
		}
		hosts = append(hosts, hostIP(index)+" "+name)
	}
	var manifest strings.Builder
	if err := parsed.Execute(&manifest, map[string]any{"Domain": clusterDomain, "IP": dnsIP, "Image": corednsImage, "Hosts": hosts, "Zones": zones, "Replicas": min(len(c.options.Nodes), maxDNSPods)}); err != nil {
		return err
	}
	return c.Apply(ctx, strings.NewReader(manifest.String()))
}

// awaitDNS waits until a pod of CoreDNS is ready whose containers were started after began. The status of a pod that an earlier run of
// the cluster left is not considered.
func (c *Cluster) awaitDNS(ctx context.Context, began time.Time) error {
	began = began.Truncate(time.Second) // the precision of times in objects
	list := cache.NewFilteredListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", corednsSpace, func(options *metav1.ListOptions) {
		options.LabelSelector = corednsLabel
	})
	err := await(ctx, list, &corev1.Pod{}, func(object runtime.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && slices.ContainsFunc(pod.Status.ContainerStatuses, func(container corev1.ContainerStatus) bool {
			return container.Ready && container.State.Running != nil && !container.State.Running.StartedAt.Time.Before(began)
		})
	})
	if err != nil {
		return fmt.Errorf("waiting for CoreDNS: %w", err)
	}
	return nil
}
