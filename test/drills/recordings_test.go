package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// recordedPod is a pod in which engineers run commands.
const recordedPod = "recorded"

// recordingsNotExported runs a command in a pod while the sink of recordings is away.
func recordingsNotExported(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	session := r.openSession(t, ctx)
	session.runPod(ctx)
	undo := r.Aside(t, "recordings/sink", []byte("no folder"))
	if output, err := session.exec(ctx, "echo", "recorded"); err != nil || output != "recorded\n" {
		t.Errorf("the command prints %q: %v", output, err)
	}
	return func() {
		undo()
		session.close(ctx)
	}
}

// recordingsUnwritable runs commands in a pod while the folder of recordings is away.
func recordingsUnwritable(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	session := r.openSession(t, ctx)
	undo := r.Aside(t, "recordings/queue", []byte("no folder"))
	stop := r.repeat(ctx, func(ctx context.Context) {
		if output, err := session.exec(ctx, "echo", "not recorded"); err == nil {
			t.Errorf("a command that is not recorded prints %q", output)
		}
	})
	return func() {
		stop()
		undo()
		session.close(ctx)
	}
}

// session is an access session of the mode admin.
type session struct {
	t      *testing.T
	region *region
	adminv1.AccessSession
	config *rest.Config
	client *kubernetes.Clientset
}

// openSession opens a session for the second cluster.
func (r *region) openSession(t *testing.T, ctx context.Context) *session {
	t.Helper()
	cluster, file := r.customer.ClusterID(second), filepath.Join(t.TempDir(), "kubeconfig")
	r.mustHcpctl(t, ctx, "access", "open", cluster, "--mode", "admin", "--for", "10m", "--file", file, "--reason", "drill of recordings", "--ticket", "INC-45")
	config := must.Get(clientcmd.BuildConfigFromFlags("", file))(t)
	// The kubeconfig names this program in place of hcpctl.
	config.ExecProvider = nil
	var credential clientauthentication.ExecCredential
	must.Do(t, json.Unmarshal([]byte(r.mustHcpctl(t, ctx, "access", "token")), &credential))
	config.BearerToken = credential.Status.Token
	client := must.Get(kubernetes.NewForConfig(config))(t)
	var open []adminv1.AccessSession
	text := r.mustHcpctl(t, ctx, "access", "sessions", "--cluster", cluster, "-o", "json")
	if err := json.Unmarshal([]byte(text), &open); err != nil || len(open) != 1 {
		t.Fatalf("the open sessions are %s: %v", text, err)
	}
	return &session{t: t, region: r, AccessSession: open[0], config: config, client: client}
}

// close ends the elevation of the session, and with it the session.
func (s *session) close(ctx context.Context) {
	s.t.Helper()
	s.region.mustHcpctl(s.t, ctx, "access", "end", s.ElevationID)
}

// runPod creates a node of the cluster and a pod on it, and waits until the pod runs.
func (s *session) runPod(ctx context.Context) {
	s.t.Helper()
	customer := s.region.customer
	must.Get(customer.Put(ctx, customer.NodePoolID(second, "commands"), customer.NodePoolBody(1)))(s.t)
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	eventually.Soon(s.t, "a pod runs", func() error {
		found, err := pods.Get(ctx, recordedPod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if len(nodes.Items) == 0 {
				return errors.New("the cluster has no node")
			}
			_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: recordedPod},
				Spec: corev1.PodSpec{NodeName: nodes.Items[0].Name, Containers: []corev1.Container{{Name: "main", Image: "registry.example/main"}}}}, metav1.CreateOptions{})
			return errors.Join(err, errors.New("the pod was just created"))
		}
		if err != nil {
			return err
		}
		if found.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("its phase is %s", found.Status.Phase)
		}
		return nil
	})
}

// exec runs a command in the pod, and returns its output.
func (s *session) exec(ctx context.Context, command ...string) (string, error) {
	request := s.client.CoreV1().RESTClient().Get().Resource("pods").Namespace(metav1.NamespaceDefault).Name(recordedPod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, request.URL().String())
	if err != nil {
		return "", err
	}
	// The executor writes both at the same time.
	var output, complaint bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &complaint})
	if complaint.Len() > 0 {
		err = errors.Join(err, errors.New(complaint.String()))
	}
	return output.String(), err
}
