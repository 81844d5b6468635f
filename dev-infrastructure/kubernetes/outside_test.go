package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	// outsideHost is the name of a service outside of the cluster, and storageClass the class of volumes.
	outsideHost = "account.blob.example"
	// outsideZone is a zone of such names.
	outsideZone  = "clusters.example"
	storageClass = "managed-csi"
)

// keeper is a pod with a volume.
var keeper = strings.ReplaceAll(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: keeper, namespace: probes}
spec: {accessModes: [ReadWriteOnce], storageClassName: managed-csi, resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper, namespace: probes, labels: {app: keeper}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: probe
    image: IMAGE
    args: [serve]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: keeper}}]
`, "IMAGE", probeImage)

// checkOutside checks that a pod uses a service of the machine under the name of a host.
func checkOutside(t *testing.T, c *cluster, pod string) {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Host) }))
	defer service.Close()
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", service.Listener.Addr().String())
	}
	must.Do(t, c.ForwardHost(c.ctx, outsideHost, "80", dial))
	if output, err := c.run(pod, "get", "http://"+outsideHost); err != nil || output != outsideHost {
		t.Errorf("http://%s responded %q, %v", outsideHost, output, err)
	}
	must.Do(t, c.ForwardHost(c.ctx, "*."+outsideZone, "80", dial))
	for _, host := range []string{"one." + outsideZone, "api.two." + outsideZone} {
		if output, err := c.run(pod, "get", "http://"+host); err != nil || output != host {
			t.Errorf("http://%s responded %q, %v", host, output, err)
		}
	}
	if output, err := c.run(pod, "resolve", "other.blob.example"); err == nil {
		t.Errorf("a name that is no host resolves to %s", output)
	}
	if err := c.ForwardHost(c.ctx, "other.blob.example", "80", dial); err == nil {
		t.Error("ForwardHost accepts a name that is no host")
	}
}

// checkVolume checks that a volume is a folder that a pod without rights can write, and that nothing remains of a deleted one.
func checkVolume(t *testing.T, c *cluster, dir string) {
	t.Helper()
	c.apply(keeper)
	c.readyPods("keeper", 1)
	if output, err := c.run("keeper", "write", "/data/file"); err != nil {
		t.Fatalf("writing to the volume: %v: %s", err, output)
	}
	core := c.Client().CoreV1()
	claim := must.Get(core.PersistentVolumeClaims(space).Get(c.ctx, "keeper", metav1.GetOptions{}))(t)
	folder := filepath.Join(dir, "nodes", "node-1", "var/lib/volumes", claim.Spec.VolumeName)
	if _, err := os.Stat(filepath.Join(folder, "file")); err != nil {
		t.Error(err)
	}
	must.Do(t, errors.Join(core.PersistentVolumeClaims(space).Delete(c.ctx, "keeper", metav1.DeleteOptions{}), core.Pods(space).Delete(c.ctx, "keeper", metav1.DeleteOptions{})))
	eventually.Before(c.ctx, t, "the deletion of the volume", func() error {
		_, err := core.PersistentVolumes().Get(c.ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the volume exists: %w", err)
		}
		return nil
	})
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a deleted volume: %v", err)
	}
}

// TestStartNamesInvalidOption checks the errors of options with which no cluster can be started.
func TestStartNamesInvalidOption(t *testing.T) {
	for want, o := range map[string]kubernetes.Options{
		`hosts: "Blob.example" is not a DNS name`:      {Hosts: []string{"Blob.example"}},
		`hosts: "blob" is not a DNS name`:              {Hosts: []string{"blob"}},
		`hosts: "blob.*.example" is not a DNS name`:    {Hosts: []string{"blob.*.example"}},
		`hosts: "blob.example" is listed twice`:        {Hosts: []string{"blob.example", "blob.example"}},
		"hosts: 101, want at most 100":                 {Hosts: make([]string, 101)},
		`storageClass: "a: b" is not a name`:           {StorageClass: "a: b"},
		"nodes: 0, want from 1 to 100":                 {},
		`nodes: the name "N" is not a DNS label`:       {Nodes: []kubernetes.Node{{Name: "N"}}},
		`dir: "relative" is not an absolute path`:      {Dir: "relative"},
		`nodeProgram: "kubernetes-node" is not an abs`: {NodeProgram: "kubernetes-node"},
	} {
		c, err := kubernetes.Start(t.Context(), o)
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
