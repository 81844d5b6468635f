package app

import (
	"bufio"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// createPod creates a pod that kubectl takes for a running one. It runs on no node.
func (r *hostedRegion) createPod(name string) {
	r.t.Helper()
	r.createPodOn(name, "")
}

// createPodOn creates a pod that runs on a node, as far as its status says.
func (r *hostedRegion) createPodOn(name, node string) {
	r.t.Helper()
	pods := r.admin.CoreV1().Pods(metav1.NamespaceDefault)
	pod := must.Get(pods.Create(r.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none", Stdin: true,
		Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}, metav1.CreateOptions{}))(r.t)
	r.t.Cleanup(func() {
		_ = pods.Delete(context.WithoutCancel(r.t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	pod.Status.Phase = corev1.PodRunning
	must.Get(pods.UpdateStatus(r.t.Context(), pod, metav1.UpdateOptions{}))(r.t)
}

// TestKubectlReads runs the real kubectl through the gateway against a real API server: what the mode read permits has the result of the API
// server, and each other command gets an error that names what is not permitted. The API server receives no change.
func TestKubectlReads(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000a1", "kubectl"
	r := newHostedRegion(t)
	r.createPod("running")
	g, _ := r.opened(session, engineer, nil)
	run := func(arguments []string) (string, error) {
		out, err := r.kubectl(g.url, session, engineer, arguments...).CombinedOutput()
		return string(out), err
	}
	for want, arguments := range map[string][]string{
		"namespace/default":                  {"get", "namespaces", "-o", "name"},
		"endpointslices":                     {"api-resources", "-o", "name"},
		"yes":                                {"auth", "can-i", "list", "pods", "-A"},
		"selfsubjectreviews":                 {"auth", "can-i", "--list"},
		"system:sre-break-glass:" + engineer: {"auth", "whoami"},
		"Status:       Active":               {"describe", "namespace", "default"},
		"ok":                                 {"get", "--raw", "/readyz"},
		"Server Version":                     {"version"},
		"FIELDS":                             {"explain", "pods"},
		"":                                   {"logs", "running", "--follow"}, // of a pod without a node, an API server returns no lines
	} {
		if out, err := run(arguments); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl %v: %s%v, want %q", arguments, out, err, want)
		}
	}
	const noCommands = "it has no commands in pods, no attach, no port forwarding and no proxies"
	for _, tc := range []struct{ want, arguments string }{
		{`pods "none" not found`, "logs none"}, // an error of the API server
		{"of pods/exec: " + noCommands, "exec running -- id"},
		{"of pods/exec: " + noCommands, "exec -i running -- sh"},
		{"of pods/attach: " + noCommands, "attach running"},
		{"of pods/portforward: " + noCommands, "port-forward pod/running :80"},
		{"of pods/exec: " + noCommands, "cp running:/etc/hostname -"},
		{"of pods/ephemeralcontainers: " + noCommands, "debug running --image=none --target=main"},
		{"of pods/proxy: " + noCommands, "get --raw /api/v1/namespaces/default/pods/running/proxy"},
		{"list of secrets", "get secrets -A"},
		{"get of secrets", "get secret a"},
		{"watch of secrets", "get --raw /api/v1/secrets?watch=true"},
		{"create of namespaces", "create namespace n"},
		{"create of namespaces", "create namespace n --dry-run=server"},
		{"delete of configmaps", "delete configmap kube-root-ca.crt"},
		{"patch of namespaces", "label namespace default a=b"},
		{"patch of pods", "annotate pod running a=b"},
		{"create of serviceaccounts/token", "create token default"},
		{"get of this path", "get --raw /debug/pprof/"},
		{"does not permit impersonation", "get pods --as=system:admin"},
		{"do not have permission", "auth whoami --as=system:admin --as-group=system:masters"}, // kubectl's own text for all refusals
		{"does not permit impersonation", "get pods --as=" + engineer + " --as-uid=1"},
	} {
		if out, err := run(strings.Fields(tc.arguments)); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("kubectl %s: %s%v, want %q", tc.arguments, out, err, tc.want)
		}
	}
	if out, err := r.kubectl(g.url, session, "mallory", "get", "pods").CombinedOutput(); err == nil || !strings.Contains(string(out), "session of another engineer") {
		t.Errorf("another engineer: %s%v", out, err)
	}
	events, err := r.events(engineer)
	if err != nil || len(events) < 10 {
		t.Fatalf("the audit log has %d requests: %v", len(events), err)
	}
	for _, e := range events {
		if e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" && !strings.HasPrefix(e.kind(), "selfsubject") {
			t.Errorf("the API server received %s of %s", e.Verb, e.kind())
		}
	}
}

// TestKubectlWatchEnds ends one of several sessions after the other, in each possible way. The watch of the real kubectl ends with its
// session, and no other one does. Further commands get the reason.
func TestKubectlWatchEnds(t *testing.T) {
	t.Parallel()
	r := newHostedRegion(t)
	r.cluster(nil)
	var credential *clusterservicev1.BreakGlassCredential
	ways := []struct {
		session string
		// end ends the session.
		end  func(session string)
		want string
	}{
		{"a0000000-0000-4000-8000-0000000000b1", r.closeSession, "ended by bob"},
		{"a0000000-0000-4000-8000-0000000000b2", func(string) { r.revoke(credential) }, "its credential was revoked"},
		{"a0000000-0000-4000-8000-0000000000b3", func(string) {
			credential.Spec.NotAfter = timestamppb.New(r.clock.Now().Add(time.Second))
			r.report(credential)
			r.clock.Step(time.Second)
		}, "its certificate or its elevation has expired"},
		{"a0000000-0000-4000-8000-0000000000b4", nil, "its certificate or its elevation has expired"},
		{"a0000000-0000-4000-8000-0000000000b5", func(string) {
			r.cluster(func(c *clusterservicev1.Cluster) { c.DeleteTime = timestamppb.Now() })
		}, "the cluster is being deleted"},
	}
	g := r.start()
	var watches []*exec.Cmd
	var issued []*clusterservicev1.BreakGlassCredential
	for i := range ways {
		way := &ways[i]
		request := r.request(way.session, "watcher", nil)
		issued = append(issued, r.issue(way.session, request, 15*time.Minute))
		if way.end == nil { // the certificate expires: its successor does soon
			way.end = func(session string) {
				r.issue(session, request, time.Second)
				r.clock.Step(time.Second)
			}
		}
		g.await(way.session, database.AccessSessionReady)
		watch := r.kubectl(g.url, way.session, "watcher", "get", "namespaces", "--watch", "-o", "name")
		out := must.Get(watch.StdoutPipe())(t)
		must.Do(t, watch.Start())
		t.Cleanup(func() { _ = watch.Process.Kill() })
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("%s: the watch has no event: %q, %v", way.want, line, err)
		}
		watches = append(watches, watch)
	}
	ended := make([]chan struct{}, len(ways))
	for i, watch := range watches {
		ended[i] = make(chan struct{})
		go func() { defer close(ended[i]); _ = watch.Wait() }() // kubectl's exit code does not depend on how its watch ends
	}
	for i, way := range ways {
		for _, other := range ended[i:] {
			select {
			case <-other:
				t.Fatalf("%s: a watch ended before its session", way.want)
			default:
			}
		}
		credential = issued[i]
		way.end(way.session)
		<-ended[i]
		if v := g.await(way.session, database.AccessSessionEnded); v.EndReason != way.want {
			t.Errorf("the session ended because %s, want %s", v.EndReason, way.want)
		}
		if out, err := r.kubectl(g.url, way.session, "watcher", "get", "namespaces").CombinedOutput(); err == nil || !strings.Contains(string(out), "The session has ended: "+way.want) {
			t.Errorf("after the end: %s%v, want %q", out, err, way.want)
		}
	}
}
