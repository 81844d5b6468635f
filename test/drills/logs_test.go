package drills

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// logAccount is the storage account of the customer that gets the logs of the first cluster.
const logAccount = "drilllogs"

// collectLogs creates the account, and a diagnostic setting that selects all logs of the first cluster.
func (r *region) collectLogs(ctx context.Context) error {
	group := "/subscriptions/" + subscription + "/resourceGroups/" + resourceGroup
	account := group + "/providers/Microsoft.Storage/storageAccounts/" + logAccount
	setting := customerlog.Setting{Properties: customerlog.SettingProperties{StorageAccountID: account,
		Logs: []customerlog.LogSelection{{CategoryGroup: "allLogs", Enabled: true}}}}
	token, err := r.customer.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
	if err != nil {
		return err
	}
	for _, put := range []struct {
		path string
		body any
	}{
		{group + "?api-version=2021-04-01", map[string]string{"location": r.Endpoints().Location}},
		{account + "?api-version=2023-05-01", map[string]string{"location": r.Endpoints().Location}},
		{resourceID(first) + "/providers/Microsoft.Insights/diagnosticSettings/all?api-version=2021-05-01-preview", setting},
	} {
		if err := fault.Send(ctx, r.Endpoints(), http.MethodPut, r.Endpoints().Azure+put.path, token.Token, put.body); err != nil {
			return err
		}
	}
	return nil
}

// serverLog returns the file of the log of a cluster's API server.
func (r *region) serverLog(t *testing.T, ctx context.Context, name string) string {
	t.Helper()
	cluster := r.lookUp(t, ctx, name)
	return r.File(t, filepath.Join("hosted", cluster.ProvisionShard, "*"+cluster.ClusterID+"*", "kube-apiserver.log"))
}

// logLine adds a line to the log of a cluster's API server.
func (r *region) logLine(t *testing.T, ctx context.Context, name, line string) {
	t.Helper()
	file, err := os.OpenFile(r.serverLog(t, ctx, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(file, line)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatal(err)
	}
}

// logsRefused makes Azure Storage refuse everything for the account of the logs, and adds a line to them.
func logsRefused(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	end := r.Emulator(t, ctx, r.Endpoints().Azure, map[string]any{"id": "logs", "services": []string{"blob"}, "path": "/" + logAccount, "status": http.StatusServiceUnavailable})
	r.logLine(t, ctx, first, "a line that Azure Storage refuses")
	return end
}

// loseLog replaces the log of a cluster's API server by another file while the log forwarder is away.
func loseLog(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	log := r.serverLog(t, ctx, first)
	release := hold("mgmt-1-log-forwarder")(t, ctx, r)
	// The API server has the removed file open, so that the new one has another inode.
	must.Do(t, os.Remove(log))
	must.Do(t, os.WriteFile(log, []byte("the first line of a new file\n"), 0o600))
	release()
	return func() {}
}
