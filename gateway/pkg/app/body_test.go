package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	podsPath    = alicePath + "/api/v1/namespaces/default/pods"
	runsCommand = `{"metadata": {"name": "miner", "annotations": {"a": "hidden"}}, "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", "steal"], "workingDir": "/hidden"}]}}`
)

// TestPodIsRecordedBeforeItIsForwarded creates a pod with a command. When the API server gets the request, the recording is on the disk. It has what the pod
// runs and nothing else of the body, and the audit, the log and the description have nothing of it. The API server gets the whole body.
func TestPodIsRecordedBeforeItIsForwarded(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	dir := t.TempDir()
	r.recordings = func(o *recorder.Options) { o.Dir = dir }
	g, _ := r.opened(aliceSession, "alice", asAdmin)
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil || string(body) != runsCommand {
			t.Errorf("the API server got %s: %v", body, err)
		}
		if files, err := os.ReadDir(dir); err != nil || !strings.Contains(fmt.Sprint(files), request.Header.Get("Audit-Id")) {
			t.Errorf("the folder of recordings has %v: %v", files, err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	response, body := g.send(http.MethodPost, "alice", podsPath+"?container=forged&tty=true", runsCommand, "Content-Type", "application/json")
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("%d: %s", response.StatusCode, body)
	}
	found := r.recordingsOf(aliceSession, 1)[0]
	var recorded policy.Record
	must.Do(t, json.Unmarshal([]byte(found.input), &recorded))
	content := fmt.Sprint(recorded.Body)
	if recorded.Verb != "create" || recorded.Name != "miner" || !strings.Contains(content, "steal") || strings.Contains(found.input, "hidden") {
		t.Errorf("recorded: %s", found.input)
	}
	if found.RecordingID != response.Header.Get("X-Request-Id") || found.Kind != "pods" || found.Namespace != "default" || found.Pod != "miner" || found.Container != "" || found.TTY || !found.Complete ||
		found.EndReason != "The API server has answered with the status 201." || found.header.Title != "pods default/miner -- create" {
		t.Errorf("the recording is %+v", found)
	}
	g.stop()
	for name, content := range map[string]string{"the log": r.log.String(), "the audit": fmt.Sprint(r.trail.Records(t)), "the description": fmt.Sprint(found.AccessRecordingDocument)} {
		if strings.Contains(content, "steal") || strings.Contains(content, "busybox") {
			t.Errorf("%s has the command: %s", name, content)
		}
	}
}

// TestUnreadBodiesDoNotArrive sends bodies that the gateway cannot read, that are too large, and that ask for access after the end of the session.
func TestUnreadBodiesDoNotArrive(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	const token = alicePath + "/api/v1/namespaces/default/serviceaccounts/a/token"
	for name, c := range map[string]struct{ path, media, body, message string }{
		"protobuf":         {podsPath, "application/vnd.kubernetes.protobuf", "k8s\x00", "not an object of Kubernetes"},
		"a large body":     {podsPath, "application/json", `{"a": "` + strings.Repeat("a", policy.MaxReadBody) + `"}`, fmt.Sprintf("larger than %d bytes", policy.MaxReadBody)},
		"a field twice":    {podsPath, "application/json", `{"spec": {}, "spec": {}}`, "a field twice"},
		"a token of a day": {token, "application/json", `{"spec": {"expirationSeconds": 86400}}`, "must not outlive the session"},
		"a token Secret":   {alicePath + "/api/v1/namespaces/default/secrets", "application/json", `{"type": "kubernetes.io/service-account-token"}`, "do not end with the session"},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := g.send(http.MethodPost, "alice", c.path, c.body, "Content-Type", c.media)
			if response.StatusCode < 400 || !strings.Contains(message(t, body), c.message) {
				t.Errorf("%d: %s", response.StatusCode, body)
			}
		})
	}
	if arrived := r.arrived(); len(arrived) > 0 {
		t.Errorf("%d requests reached the API server", len(arrived))
	}
	if response, body := g.send(http.MethodPost, "alice", token, `{"spec": {"expirationSeconds": 600}}`); response.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
	r.clock.Step(6 * time.Minute)
	g.sendUntilKnown(alicePath + "/version")
	if response, body := g.send(http.MethodPost, "alice", token, `{"spec": {"expirationSeconds": 600}}`); response.StatusCode != http.StatusForbidden || !strings.Contains(message(t, body), "no spec.expirationSeconds is possible") {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
}

// TestNothingIsCreatedWithoutRecording creates what must be recorded while the limit of recordings is reached.
func TestNothingIsCreatedWithoutRecording(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.recordings = func(o *recorder.Options) { o.MaxTotal = 1 }
	g, _ := r.opened(aliceSession, "alice", asAdmin)
	for path, body := range map[string]string{podsPath: runsCommand, alicePath + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": `{"roleRef": {"name": "cluster-admin"}}`} {
		if response, text := g.send(http.MethodPost, "alice", path, body); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, text), "cannot be recorded") {
			t.Errorf("%s: %d: %s", path, response.StatusCode, text)
		}
	}
	if arrived := r.arrived(); len(arrived) > 0 {
		t.Errorf("%d requests reached the API server", len(arrived))
	}
	if response, body := g.send(http.MethodPost, "alice", alicePath+"/api/v1/namespaces/default/configmaps", "{}"); response.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
}

// TestKubectlLeavesNoUnrecordedAccess uses kubectl to keep access after the session, with a real API server.
func TestKubectlLeavesNoUnrecordedAccess(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000e7", "keeper"
	r := newHostedRegion(t)
	r.createPod("debugged")
	g, _ := r.opened(session, engineer, asAdmin)
	run := func(stdin string, arguments ...string) (string, error) {
		command := r.kubectl(g.url, session, engineer, arguments...)
		command.Stdin = strings.NewReader(stdin)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	const secret = `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept", "annotations": {"kubernetes.io/service-account.name": "kept"}}, "type": "kubernetes.io/service-account-token"}`
	permitted := [][]string{
		{"create", "serviceaccount", "kept"},
		{"create", "clusterrolebinding", "kept", "--clusterrole=cluster-admin", "--serviceaccount=default:kept"},
		{"create", "token", "kept", "--duration=600s"},
		{"run", "kept", "--image=busybox", "--overrides", `{"spec": {"serviceAccountName": "default"}}`, "--command", "--", "sh", "-c", "steal"},
		{"create", "deployment", "kept", "--image=busybox", "--", "sh", "-c", "steal"},
		{"set", "image", "deployment/kept", "busybox=alpine"},
		{"patch", "deployment", "kept", "--type=json", "-p", `[{"op":"replace","path":"/spec/template/spec/containers/0/command","value":["steal"]}]`},
		{"debug", "debugged", "--image=busybox", "--container=kept", "--attach=false", "--", "sh", "-c", "steal"},
	}
	for _, arguments := range permitted {
		if out, err := run("", arguments...); err != nil {
			t.Errorf("kubectl %v: %s%v", arguments, out, err)
		}
	}
	if out, err := run(secret, "create", "-f", "-"); err == nil || !strings.Contains(out, "do not end with the session") {
		t.Errorf("a token Secret: %s%v", out, err)
	}
	if out, err := run(secret, "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(out, "do not end with the session") {
		t.Errorf("an applied token Secret: %s%v", out, err)
	}
	for _, arguments := range [][]string{{"--duration=24h"}, nil} {
		if out, err := run("", append([]string{"create", "token", "kept"}, arguments...)...); err == nil || !strings.Contains(out, "must not outlive the session") {
			t.Errorf("a token with %v: %s%v", arguments, out, err)
		}
	}
	if _, err := r.admin.CoreV1().Secrets("default").Get(t.Context(), "kept", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(errors.Join(errors.New("the token Secret exists"), err))
	}
	commands := 0
	for _, found := range r.recordingsOf(session, len(permitted)) {
		if strings.Contains(found.input, "steal") {
			commands++
		}
		if strings.Contains(found.input, "eyJ") {
			t.Errorf("the recording has a token: %s", found.input)
		}
	}
	if commands != 4 {
		t.Errorf("%d of 4 commands are recorded", commands)
	}
}
