package managementaudit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// memory is a Recorder in memory.
type memory struct {
	audit.Recorder
	mu      sync.Mutex
	records []audit.Record
}

func (m *memory) Append(_ context.Context, r audit.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	return nil
}

func (m *memory) summaries() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, r := range m.records {
		all = append(all, strings.Join([]string{r.Person.Name, r.Person.As, r.Action, r.Object.Kind, r.Object.ID, r.Outcome}, " "))
	}
	return all
}

// TestEngineerIsSeen runs kubectl as an engineer against an API server with the policy.
func TestEngineerIsSeen(t *testing.T) {
	cluster := kubeapitest.Start(t)
	kubectl := filepath.Join(cluster.Programs, "kubectl")
	if _, err := os.Stat(kubectl); err != nil {
		t.Skip("kubectl is not built; run make kubectl")
	}
	const secret = "hunter2"
	engineer := cluster.KubeconfigOf(t, "ada@example.com", "system:masters")
	hypershift := cluster.KubeconfigOf(t, "hypershift", "system:masters")
	session := cluster.KubeconfigOf(t, "system:serviceaccount:"+managementaccess.Tunnel+":"+managementaccess.SessionAccount(adminv1.LevelAdmin), "system:masters")
	nobody := cluster.KubeconfigOf(t, "mallory@example.com", "nobody")
	run := func(kubeconfig string, arguments ...string) error {
		command := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", t.TempDir()}, arguments...)...)
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	for _, arguments := range [][]string{
		{"create", "secret", "generic", "key", "--from-literal=key=" + secret},
		{"get", "secret", "key"},
		{"get", "namespaces"},
		{"get", "namespaces", "--as", "grace@example.com", "--as-group", "system:masters"},
		{"create", "token", "default"},
	} {
		if err := run(engineer, arguments...); err != nil && arguments[1] != "token" {
			t.Fatal(err)
		}
	}
	must.Do(t, run(session, "create", "secret", "generic", "session", "--from-literal=key="+secret))
	if err := run(nobody, "get", "namespaces"); err == nil {
		t.Fatal("a user without rights can read namespaces")
	}
	// The command fails, because the pod has no node, and is recorded.
	must.Do(t, run(engineer, "run", "idle", "--image=registry.example.com/idle"))
	if err := run(engineer, "exec", "idle", "--", "cat", secret); err == nil {
		t.Fatal("a command ran in a pod without a node")
	}
	for _, arguments := range [][]string{
		{"create", "configmap", "routine"},
		{"create", "clusterrole", "backdoor", "--verb=*", "--resource=secrets"},
	} {
		must.Do(t, run(hypershift, arguments...))
	}

	dir, records := t.TempDir(), &memory{}
	follower := must.Get(managementaudit.New(managementaudit.Options{Cluster: "mgmt-1", LogDir: cluster.AuditLogs, PositionFile: filepath.Join(dir, "position"),
		QueueDir: filepath.Join(dir, "queue"), Recorder: records, Metrics: prometheus.NewRegistry(), Log: slog.Default()}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := follower.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer group.Wait()
	defer cancel()
	eventually.Soon(t, "the actions are recorded", func() error {
		seen := strings.Join(records.summaries(), "\n")
		var missing []error
		for _, want := range []string{
			"ada@example.com  kubernetes.create secrets mgmt-1/default/key succeeded",
			"ada@example.com  kubernetes.get secrets mgmt-1/default/key succeeded",
			"ada@example.com grace@example.com kubernetes.list namespaces mgmt-1 succeeded",
			"system:serviceaccount:gateway-tunnel:access-admin  kubernetes.create secrets mgmt-1/default/session succeeded",
			"pods/exec mgmt-1/default/idle failed",
			"mallory@example.com  kubernetes.list namespaces mgmt-1 refused",
			"hypershift  kubernetes.create clusterroles.rbac.authorization.k8s.io mgmt-1/backdoor succeeded",
		} {
			if !strings.Contains(seen, want) {
				missing = append(missing, errors.New("missing: "+want))
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%w\nrecorded:\n%s", errors.Join(missing...), seen)
		}
		return nil
	})

	for _, summary := range records.summaries() {
		if summary == "ada@example.com  kubernetes.list namespaces mgmt-1 succeeded" || strings.Contains(summary, "routine") {
			t.Errorf("recorded: %s", summary)
		}
	}
	logs, err := filepath.Glob(filepath.Join(cluster.AuditLogs, "*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), "a2V5Omh1bnRlcjI") || strings.Contains(string(text), `"requestObject"`) {
			t.Errorf("%s has bodies of requests: %v", path, err)
		}
	}
}
