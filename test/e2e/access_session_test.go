package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// TestAccessSessions reads a hosted cluster with the real kubectl through the session gateway. The sessions end with a command, with their
// elevation and with the cluster.
func TestAccessSessions(t *testing.T) {
	d := newScenario(t, "11111111-0000-0000-0000-000000000041", "sessions")

	holder := kubectl{t: t, kubeconfig: filepath.Join(t.TempDir(), "session.kubeconfig")}
	open := func(ticket string) {
		d.hcpctl("access", "open", d.id, "--for", "10m", "--file", holder.kubeconfig, "--as", "operator", "--reason", "the ingress is slow", "--ticket", ticket)
	}
	d.step("read", func() { open("INC-40"); d.readThroughGateway(holder) })
	d.step("refusals", func() { d.refusedByGateway(holder) })
	d.step("another engineer", func() {
		content := must.Get(os.ReadFile(holder.kubeconfig))(t)
		stolen := withKubeconfig(t, []byte(strings.Replace(string(content), "operator", "oncall", 1)))
		if out, err := stolen.run(d.ctx, "get", "namespaces"); err == nil || !strings.Contains(err.Error(), "another engineer") {
			t.Errorf("another engineer gets %q: %v", out, err)
		}
	})
	d.step("end", func() {
		watched := d.watchNamespaces(holder)
		defer watched.Stop()
		d.hcpctl("access", "close", d.openSession().ID, "--as", "operator")
		d.awaitWatchEnds(watched)
		if out, err := holder.run(d.ctx, "get", "namespaces"); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("after the end: %q: %v", out, err)
		}
	})
	d.step("end of the elevation", func() {
		open("INC-41")
		watched := d.watchNamespaces(holder)
		defer watched.Stop()
		session := d.openSession()
		d.hcpctl("access", "end", session.ElevationID, "--as", "operator", "--no-wait")
		d.awaitWatchEnds(watched)
		// The revocation replaces the signer, which ends a session whose certificate was issued before. So the next one must not be opened yet.
		d.hcpctl("access", "end", session.ElevationID, "--as", "operator")
	})
	d.step("restricted API", d.restrictAPI)
	d.step("commands in pods", d.recordCommands)
	d.step("management cluster", d.useManagementCluster)
	d.step("deletion of the cluster", func() {
		open("INC-42")
		watched := d.watchNamespaces(holder)
		defer watched.Stop()
		must.Do(t, d.c.Delete(d.ctx, d.id))
		d.awaitWatchEnds(watched)
	})
	d.step("audit", d.sessionsAreAudited)
}

// openSession returns the only open session of the cluster.
func (d *scenario) openSession() adminv1.AccessSession {
	d.t.Helper()
	var sessions []adminv1.AccessSession
	if err := json.Unmarshal([]byte(d.hcpctlRead("access", "sessions", "--cluster", d.id, "--output", "json")), &sessions); err != nil || len(sessions) != 1 {
		d.t.Fatalf("the open sessions are %+v: %v", sessions, err)
	}
	return sessions[0]
}

// readThroughGateway reads with each verb. The API server sees the certificate of the engineer.
func (d *scenario) readThroughGateway(holder kubectl) {
	content := must.Get(os.ReadFile(holder.kubeconfig))(d.t)
	for _, secret := range []string{"token:", "client-key", "client-certificate-data", "password"} {
		if strings.Contains(string(content), secret) {
			d.t.Errorf("the kubeconfig contains %s", secret)
		}
	}
	for _, arguments := range [][]string{{"get", "namespaces", "-o", "name"}, {"get", "configmaps", "-A", "-o", "name"}, {"get", "clusterrole", "cluster-reader", "-o", "name"}, {"api-resources", "-o", "name"},
		{"version", "-o", "json"}, {"describe", "namespace", "default"}, {"auth", "can-i", "list", "pods", "-A"}, {"get", "--raw", "/readyz"}} {
		if out, err := holder.run(d.ctx, arguments...); err != nil || out == "" {
			d.t.Errorf("kubectl %v: %q: %v", arguments, out, err)
		}
	}
	whoami := []string{"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"}
	if out, err := holder.run(d.ctx, whoami...); err != nil || !strings.HasPrefix(out, "system:sre-break-glass:") {
		d.t.Errorf("kubectl %v: %q: %v", whoami, out, err)
	}
}

// refusedByGateway tries what the mode read does not permit. The gateway refuses all of it, and the API server what is only not there.
func (d *scenario) refusedByGateway(holder kubectl) {
	for want, arguments := range map[string][]string{
		"list of secrets":         {"get", "secrets", "-A"},
		"create of namespaces":    {"create", "namespace", "n"},
		"delete of configmaps":    {"delete", "configmap", "kube-root-ca.crt", "-n", "default"},
		"patch of namespaces":     {"label", "namespace", "default", "a=b"},
		"serviceaccounts/token":   {"create", "token", "default", "-n", "default"},
		"get of this path":        {"get", "--raw", "/debug/pprof/"},
		"pods \"none\" not found": {"logs", "none", "-n", "default"},
		"permit impersonation":    {"get", "--raw", "/api/v1/namespaces", "--as", "system:admin"},
		"of pods/exec":            {"create", "--raw", "/api/v1/namespaces/default/pods/none/exec?command=id", "-f", "/dev/null"},
	} {
		if out, err := holder.run(d.ctx, arguments...); err == nil || !strings.Contains(err.Error(), want) {
			d.t.Errorf("kubectl %v: %q: %v, want %q", arguments, out, err, want)
		}
	}
}

// useManagementCluster reads the management cluster of the cluster with the real kubectl. The mode read has no Secrets. The session ends with its elevation.
func (d *scenario) useManagementCluster() {
	dump := must.Get(adminclient.Get(d.ctx, engineer(d.t, "reader"), adminv1.ReadDump, nil, d.id))(d.t)
	found := dump.Cluster
	holder := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "management.kubeconfig")}
	d.hcpctl("mc", "access", found.ProvisionShard, "--for", "10m", "--file", holder.kubeconfig, "--as", "operator", "--reason", "works are not applied", "--ticket", "INC-45")
	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"}, "system:serviceaccount:gateway-tunnel:access-reader"},
		{[]string{"get", "hostedclusters", "-A", "-o", "jsonpath={.items[*].metadata.labels}"}, found.ClusterID},
		{[]string{"get", "namespaces", "-o", "name"}, "namespace/gateway-tunnel"},
	} {
		if out, err := holder.run(d.ctx, test.arguments...); err != nil || !strings.Contains(out, test.want) {
			d.t.Errorf("kubectl %v: %q: %v, want %q", test.arguments, out, err, test.want)
		}
	}
	for want, arguments := range map[string][]string{
		"list of secrets":      {"get", "secrets", "-A"},
		"delete of namespaces": {"delete", "namespace", "gateway-tunnel"},
		"permit impersonation": {"get", "--raw", "/api/v1/namespaces", "--as", "system:admin"},
	} {
		if out, err := holder.run(d.ctx, arguments...); err == nil || !strings.Contains(err.Error(), want) {
			d.t.Errorf("kubectl %v: %q: %v, want %q", arguments, out, err, want)
		}
	}
	var sessions []adminv1.AccessSession
	if err := json.Unmarshal([]byte(d.hcpctlRead("access", "sessions", "--shard", found.ProvisionShard, "--output", "json")), &sessions); err != nil || len(sessions) != 1 {
		d.t.Fatalf("the open sessions are %+v: %v", sessions, err)
	}
	if out := d.hcpctl("access", "end", sessions[0].ElevationID, "--as", "operator"); !strings.Contains(out, "management cluster "+found.ProvisionShard+" have ended") {
		d.t.Errorf("the end of the elevation prints %q", out)
	}
	if out, err := holder.run(d.ctx, "get", "namespaces"); err == nil || !strings.Contains(err.Error(), "has ended") {
		d.t.Errorf("after the end: %q: %v", out, err)
	}
}

// restrictAPI makes the API server of the cluster accept only connections from a network of the customer. The gateway then connects through the tunnel of the
// management cluster, in later steps as well. In a local region nothing else refuses a direct connection.
func (d *scenario) restrictAPI() {
	body := d.c.ClusterBody("sessions")
	body.Properties.(map[string]any)["api"] = map[string]any{"authorizedCidrs": []string{"203.0.113.0/24"}}
	d.put(d.id, body)
	tunneled := func() string {
		text := must.Get(metricsOf(d.ctx, "gateway-access"))(d.t)
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, `gateway_access_connections_total{outcome="succeeded",way="tunnel"} `) {
				return line
			}
		}
		d.t.Fatal("the gateway does not count connections through tunnels")
		return ""
	}
	before := tunneled()
	holder := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "restricted.kubeconfig")}
	d.hcpctl("access", "open", d.id, "--for", "10m", "--file", holder.kubeconfig, "--as", "operator", "--reason", "the ingress is slow", "--ticket", "INC-44")
	session := d.openSession()
	d.readThroughGateway(holder)
	if after := tunneled(); after == before {
		d.t.Errorf("no connection went through the tunnel: %s", after)
	}
	d.hcpctl("access", "end", session.ElevationID, "--as", "operator")
}

// recordCommands creates a pod and runs commands in it through the gateway, and reads the recordings, the newest first.
func (d *scenario) recordCommands() {
	d.put(d.c.NodePoolID("sessions", "commands"), d.c.NodePoolBody(1))
	holder := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "commands.kubeconfig"), namespace: "default"}
	d.hcpctl("access", "open", d.id, "--mode", "admin", "--for", "10m", "--file", holder.kubeconfig, "--as", "oncall", "--reason", "a pod hangs", "--ticket", "INC-43")
	session := d.openSession()
	node := holder.get(d.ctx, "nodes", "{.items[0].metadata.name}")
	for _, arguments := range [][]string{{"run", "web", "--image=registry.example/web", "--overrides", fmt.Sprintf(`{"spec":{"nodeName":%q}}`, node)}, {"wait", "pod/web", "--for=condition=Ready", "--timeout=2m"},
		{"exec", "web", "--", "sh", "-c", "echo printed in $HOSTNAME; echo to a file > note"}, {"exec", "web", "--", "cat", "note"}} {
		if out, err := holder.run(d.ctx, arguments...); err != nil {
			d.t.Fatalf("kubectl %v: %q: %v", arguments, out, err)
		}
	}
	var recordings []adminv1.Recording
	eventually.Before(d.ctx, d.t, "the recordings of the commands have ended", func() error {
		if err := json.Unmarshal([]byte(d.hcpctlRead("access", "recordings", "--session", session.ID, "--output", "json")), &recordings); err != nil {
			return err
		}
		if len(recordings) != 3 || slices.ContainsFunc(recordings, func(r adminv1.Recording) bool { return !r.Complete }) {
			return fmt.Errorf("the recordings are %+v", recordings)
		}
		return nil
	})
	for i, texts := range [][]string{{"-- cat note", "shown", "to a file"}, {"-- sh -c", "echo to a file > note", "printed in web"}, {"registry.example/web", "create"}} {
		shown := d.hcpctlRead("access", "recording", recordings[i].ID, "--as", "oncall")
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				d.t.Errorf("the recording lacks %q:\n%s", text, shown)
			}
		}
	}
	if out, err := d.tryHcpctl("access", "recording", recordings[0].ID, "--as", "operator"); err == nil || !strings.Contains(err.Error(), "break-glass") {
		d.t.Errorf("the role operator reads a recording: %q: %v", out, err)
	}
	// The revocation replaces the signer, which ends a session whose certificate was issued before. So the next one must not be opened yet.
	d.hcpctl("access", "end", session.ElevationID, "--as", "oncall")
}

// sessionsAreAudited waits until the audit has the requests of the sessions with their tickets, and those that were refused.
func (d *scenario) sessionsAreAudited() {
	awaitAudit(d.t, "the audit has the requests of the sessions", func(records map[string][]audit.Record) error {
		found := map[string]bool{}
		for _, r := range records["gateway-access"] {
			if r.Operation != "" && r.Person.Elevation != "" {
				found[r.Ticket+" "+r.Action+" "+r.Outcome] = true
			}
		}
		for _, want := range []string{"INC-40 kubernetes.list succeeded", "INC-40 kubernetes.list refused", "INC-41 kubernetes.watch started", "INC-42 kubernetes.watch started"} {
			if !found[want] {
				return fmt.Errorf("there is no record %s", want)
			}
		}
		return nil
	})
}
