package rotation

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

const shard = "mgmt-1"

// rotateEtcd creates the first cluster, which stays, and begins to run `hcpctl keys rotate etcd` for the management cluster and for that cluster. Both
// take minutes, because API servers compare their configuration once a minute. The function returned waits for them.
func rotateEtcd(ctx context.Context, t *testing.T, c *customer.Customer, dir string) (wait func()) {
	t.Helper()
	id := c.ClusterID("kept")
	must.Get(c.Put(ctx, id, c.ClusterBody("kept")))(t)
	file := local.EncryptionFileOf(dir, shard)
	former := encryptionKeys(t, file)
	rotate := []string{"keys", "rotate", "etcd", "--state-dir", dir, "--shard", shard}
	namespace := keptControlPlane(ctx, t, rotate)
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // also if the test fails before it waits
	running.Go(func() {
		run(ctx, t, rotate...)
		if now := encryptionKeys(t, file); now.Read != nil || now.Write.Number != former.Write.Number+1 {
			t.Errorf("the key %d of %s was replaced by %d; another key is left: %v", former.Write.Number, shard, now.Write.Number, now.Read != nil)
		}
	})
	running.Go(func() { run(ctx, t, append(rotate, "--control-plane", namespace)...) })
	return running.Wait
}

// keptControlPlane returns the namespace of the only control plane, from the error for one that does not exist.
func keptControlPlane(ctx context.Context, t *testing.T, rotate []string) string {
	t.Helper()
	var output bytes.Buffer
	hcpctl := command.New(&output, &output)
	hcpctl.SetArgs(append(rotate, "--control-plane", "missing"))
	err := hcpctl.ExecuteContext(ctx)
	if err == nil {
		t.Fatal("the key of a missing control plane was rotated")
	}
	namespace := regexp.MustCompile(`\[(\S+)\]`).FindStringSubmatch(err.Error())
	if namespace == nil {
		t.Fatalf("the error does not name the control plane: %v", err)
	}
	return namespace[1]
}

func encryptionKeys(t *testing.T, file string) kubeapi.EncryptionKeys {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return kubeapi.EncryptionKeys{}
	}
	keys, _, err := kubeapi.ReadEncryptionConfiguration(text)
	if err != nil {
		t.Error(err)
	}
	return keys
}
