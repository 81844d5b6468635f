package kubernetes

import (
	"context"
	_ "embed" // the manifest
	"fmt"
	"strings"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

const (
	corednsProgram = "coredns"
	corednsImage   = "images.local/coredns:1"
	corednsName    = "coredns"
	corednsSpace   = "kube-system"
)

//go:embed files/coredns.yaml
var corednsManifest string

// installDNS applies the objects of CoreDNS.
func (c *Cluster) installDNS(ctx context.Context) error {
	parsed, err := template.New("coredns.yaml").Option("missingkey=error").Parse(corednsManifest)
	if err != nil {
		return err
	}
	var manifest strings.Builder
	if err := parsed.Execute(&manifest, map[string]string{"Domain": clusterDomain, "IP": dnsIP, "Image": corednsImage}); err != nil {
		return err
	}
	return c.Apply(ctx, strings.NewReader(manifest.String()))
}

// awaitDNS waits until a pod of CoreDNS is ready.
func (c *Cluster) awaitDNS(ctx context.Context) error {
	list := cache.NewListWatchFromClient(c.client.AppsV1().RESTClient(), "deployments", corednsSpace, fields.OneTermEqualSelector("metadata.name", corednsName))
	err := await(ctx, list, &appsv1.Deployment{}, func(object runtime.Object) bool {
		deployment, ok := object.(*appsv1.Deployment)
		return ok && deployment.Status.ReadyReplicas > 0
	})
	if err != nil {
		return fmt.Errorf("waiting for CoreDNS: %w", err)
	}
	return nil
}
