package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

// twoNodes are nodes in different zones.
var twoNodes = []kubernetes.Node{
	{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-1"}},
	{Name: "node-2", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-2"}},
}

// outside is a Service on a port of every node, and a pod that uses a port of its node.
const outside = `
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: probes}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: probes}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Pod
metadata: {name: host-port, namespace: default}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers:
  - {name: probe, image: "` + probeImage + `", args: [serve], ports: [{containerPort: 8080, hostPort: 8081}]}
`

// get requests a URL through the network of the cluster.
func (c *cluster) get(url string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, address) }}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// kubectl runs kubectl as the administrator of the cluster.
func (c *cluster) kubectl(o kubernetes.Options, arguments ...string) {
	c.t.Helper()
	command := exec.CommandContext(c.ctx, filepath.Join(o.ThirdParty, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, arguments...)...)
	if output, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("kubectl %v: %v: %s", arguments, err, output)
	}
}

// onNode returns how many of the pods are on a node.
func onNode(pods []corev1.Pod, name string) int {
	count := 0
	for _, pod := range pods {
		if pod.Spec.NodeName == name {
			count++
		}
	}
	return count
}

// checkConnections checks that each pod receives a response from each other pod and through the Service.
func (c *cluster) checkConnections(pods []corev1.Pod) {
	c.t.Helper()
	for _, from := range pods {
		for _, to := range pods {
			if name, err := c.run(from.Name, "get", "http://"+to.Status.PodIP+":8080"); err != nil || name != to.Name {
				c.t.Errorf("%s on %s received %q from %s on %s: %v", from.Name, from.Spec.NodeName, name, to.Name, to.Spec.NodeName, err)
			}
		}
		eventually.Before(c.ctx, c.t, "a response through the Service to "+from.Name, func() error {
			_, err := c.run(from.Name, "get", "http://web."+space+".svc.cluster.local")
			return err
		})
	}
}

// TestPodsMoveBetweenNodes checks connections between nodes, a drain, and the loss and the return of a node.
func TestPodsMoveBetweenNodes(t *testing.T) {
	transcript.Outcome(t, transcript.Nodes)
	nightly.Only(t)
	o := options(t, twoNodes...)
	c := start(t, o)
	c.apply(workload("web", 2) + "---" + outside)
	pods := c.readyPods("web", 2)
	for _, n := range twoNodes {
		if onNode(pods, n.Name) != 1 {
			t.Errorf("%d of the pods are on %s, want 1", onNode(pods, n.Name), n.Name)
		}
	}
	c.checkConnections(pods)
	for _, url := range []string{"http://10.77.0.11:30080", "http://10.77.0.12:30080", "http://10.77.0.11:8081"} {
		eventually.Before(c.ctx, t, "a response from "+url, func() error {
			_, err := c.get(url)
			return err
		})
	}

	t.Run("drain", func(t *testing.T) {
		c.kubectl(o, "drain", "node-1", "--force", "--ignore-daemonsets", "--timeout=2m")
		if pods := c.readyPods("web", 2); onNode(pods, "node-2") != 2 {
			t.Errorf("%d of the pods are on node-2 after node-1 was drained", onNode(pods, "node-2"))
		}
		c.checkConnections(c.readyPods("web", 2))
		c.kubectl(o, "uncordon", "node-1")
	})

	t.Run("loss and return", func(t *testing.T) {
		must.Do(t, c.KillNode(c.ctx, "node-2"))
		if err := c.NodeErr(c.ctx, "node-2"); err == nil {
			t.Error("a killed node has no reason for its end")
		}
		if _, err := c.Dial(c.ctx, "10.77.0.12:10250"); err == nil {
			t.Error("the kubelet of a killed node accepts connections")
		}
		notReady := func(n *corev1.Node) bool {
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					return condition.Status != corev1.ConditionTrue
				}
			}
			return false
		}
		must.Do(t, c.AwaitNode(c.ctx, "node-2", "not ready", notReady))
		eventually.Before(c.ctx, t, "both pods on node-1", func() error {
			if pods := c.readyPods("web", 2); onNode(pods, "node-1") != 2 {
				return fmt.Errorf("%d of the pods are on node-1", onNode(pods, "node-1"))
			}
			return nil
		})
		must.Do(t, c.StartNode(c.ctx, "node-2"))
		must.Do(t, c.AwaitReady(c.ctx, "node-2"))
		c.kubectl(o, "--namespace", space, "scale", "deployment/web", "--replicas=4")
		pods := c.readyPods("web", 4)
		if onNode(pods, "node-2") == 0 {
			t.Error("the returned node has no pods")
		}
		c.checkConnections(pods)
		eventually.Before(c.ctx, t, "only the pods of the deployment", func() error {
			list, err := c.Client().CoreV1().Pods(space).List(c.ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) != 4 {
				err = fmt.Errorf("%d pods", len(list.Items))
			}
			return err
		})
	})
}
