package stubkubelet_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/stubkubelet"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// cluster is a cluster whose nodes are simulated.
type cluster struct {
	Server *stubkubelet.Server
	Client kubernetes.Interface
	// Config is the configuration of the administrator.
	Config *rest.Config
}

// serve serves the nodes of a cluster until the end of the test. change, which may be nil, changes the options of the server.
func serve(t testing.TB, kube *kubeapitest.Cluster, change func(*stubkubelet.Options)) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kube.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	options := stubkubelet.Options{Certificate: kube.KubeletCertificate(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&options)
	}
	server, err := stubkubelet.Listen(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if err := server.Serve("test", config, config.CAData); err != nil {
		t.Fatal(err)
	}
	return &cluster{Server: server, Client: client, Config: config}
}

// Node registers a simulated node that is Ready, and deletes it at the end of the test.
func (c *cluster) Node(t testing.TB, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}}}
	c.Server.Announce(&node.Status)
	if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// Pod creates a pod on a node and waits until it is Running. The pod is deleted at the end of the test. Its container "app" declares the TCP
// port 8080. change, which may be nil, changes the pod before it is created.
func (c *cluster) Pod(t testing.TB, namespace, name, node string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "app", Image: "example.com/app:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, Env: []corev1.EnvVar{{Name: "COLOUR", Value: "green"}}}}},
	}
	if change != nil {
		change(pod)
	}
	pods := c.Client.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		if err := pods.Delete(context.Background(), name, options); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	var running *corev1.Pod
	eventually.Soon(t, "pod "+name+" is running", func() error {
		var err error
		running, err = pods.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && running.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", running.Status.Phase)
		}
		return err
	})

	return running
}
