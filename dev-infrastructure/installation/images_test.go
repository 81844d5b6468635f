package installation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

// timeout bounds a test.
const timeout = 15 * time.Minute

// imagesDir is the folder into which `make images` builds.
const imagesDir = "../../.build/images"

// builtImages returns the folder into which `make images` builds, or skips the test if it must not depend on it.
func builtImages(t *testing.T) string {
	t.Helper()
	nightly.Only(t)
	return imagesDir
}

// buildImages builds images into a folder of the test and returns it, or skips the test on a machine where no node can run.
func buildImages(ctx context.Context, t *testing.T, names ...string) string {
	t.Helper()
	nodePrograms(t)
	dir := t.TempDir()
	arguments := append([]string{"run", "../../tooling/images/cmd/images", "build", "-into", dir}, names...)
	if output, err := exec.CommandContext(ctx, "go", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return dir
}

// nodePrograms returns the folder of the third-party programs of nodes, or skips the test on a machine where no node can run.
func nodePrograms(t *testing.T) string {
	t.Helper()
	nightly.Only(t)
	programs := must.Get(filepath.Abs("../../.build/third-party/bin"))(t)
	if err := (kubernetes.Options{ThirdParty: programs}).Check(); err != nil {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	return programs
}

// startCluster starts a cluster of nodes, or skips the test where none can run.
func startCluster(ctx context.Context, t *testing.T, nodes ...kubernetes.Node) *kubernetes.Cluster {
	t.Helper()
	return startClusterWith(ctx, t, kubernetes.Options{Nodes: nodes})
}

// startClusterWith starts a cluster with options, to which it adds the folders and programs.
func startClusterWith(ctx context.Context, t *testing.T, o kubernetes.Options) *kubernetes.Cluster {
	t.Helper()
	built := t.TempDir()
	o.Dir, o.ThirdParty = t.TempDir(), nodePrograms(t)
	o.NodeProgram, o.PauseProgram = filepath.Join(built, "kubernetes-node"), filepath.Join(built, "pause")
	build := exec.CommandContext(ctx, "go", "build", "-o", built+"/", "../kubernetes/cmd/kubernetes-node", "../kubernetes/cmd/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	began := time.Now()
	cluster := must.Get(kubernetes.Start(ctx, o))(t)
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	transcript.Log(t, transcript.Nodes, "a cluster of %d nodes was ready after %v", len(o.Nodes), time.Since(began).Round(time.Millisecond))
	return cluster
}

// helpPod is a pod that prints the help of the program of an image, under the pod security standard restricted.
func helpPod(name, image string) *corev1.Pod {
	yes, no := true, false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "program", Image: image, Args: []string{"--help"},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}

// TestNodesRunBuiltImages checks that a real node pulls every image of the repository by its digest, under the name of a production
// registry, and that its program starts as a restricted pod.
func TestNodesRunBuiltImages(t *testing.T) {
	dir := builtImages(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cluster := startCluster(ctx, t, kubernetes.Node{Name: "node-1"})
	began := time.Now()
	list := must.Get(installation.PushImages(ctx, cluster, dir))(t)
	t.Logf("%d images were pushed after %v", len(list.Images), time.Since(began).Round(time.Millisecond))
	const space = "images"
	must.Do(t, cluster.Apply(ctx, strings.NewReader("{apiVersion: v1, kind: Namespace, metadata: {name: images, labels: {pod-security.kubernetes.io/enforce: restricted}}}")))
	pods := cluster.Client().CoreV1().Pods(space)
	eventually.Before(ctx, t, "the service account of the namespace", func() error {
		_, err := cluster.Client().CoreV1().ServiceAccounts(space).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for name, image := range list.Images {
		must.Get(pods.Create(ctx, helpPod(name, "hcpmdevsvc.azurecr.io/"+image.Repository+"@"+image.Digest), metav1.CreateOptions{}))(t)
	}
	for _, name := range slices.Sorted(maps.Keys(list.Images)) {
		var pod *corev1.Pod
		eventually.Before(ctx, t, "the end of the program of "+name, func() error {
			var err error
			if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				return fmt.Errorf("%s: %v", pod.Status.Phase, pod.Status.ContainerStatuses)
			}
			return nil
		})
		output, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if pod.Status.Phase != corev1.PodSucceeded || err != nil || len(output) == 0 {
			t.Errorf("%s is %s and printed %q, %v", name, pod.Status.Phase, output, err)
		}
		if id := pod.Status.ContainerStatuses[0].ImageID; !strings.HasSuffix(id, list.Images[name].Digest) {
			t.Errorf("%s runs the image %s, want the digest %s", name, id, list.Images[name].Digest)
		}
	}
	t.Logf("all programs had started after %v", time.Since(began).Round(time.Millisecond))

	// Pods must not be able to replace the images of the nodes.
	connection := must.Get(cluster.Dial(ctx, "10.77.0.1:5000"))(t)
	defer func() { _ = connection.Close() }()
	must.Get(connection.Write([]byte("POST /v2/hcpmesh/frontend/blobs/uploads/ HTTP/1.0\r\n\r\n")))(t)
	answer := make([]byte, len("HTTP/1.0 403"))
	if _, err := connection.Read(answer); err != nil || !strings.HasSuffix(string(answer), " 403") {
		t.Errorf("a write from the cluster's network: %q, %v; want 403", answer, err)
	}
}

// TestPushImagesNamesMissingBuild checks the errors for a folder without a build.
func TestPushImagesNamesMissingBuild(t *testing.T) {
	_, err := installation.PushImages(t.Context(), nil, t.TempDir())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "run make images") {
		t.Errorf("PushImages without a build: %v", err)
	}
}
