package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// logAccount is a storage account of the customer.
type logAccount struct {
	t                         *testing.T
	ctx                       context.Context
	name, armToken, blobToken string
}

// arm sends a request to the emulated Resource Manager as the customer.
func (a *logAccount) arm(method, path, body string, wanted ...int) {
	a.t.Helper()
	if status, text := azureResponse(a.t, a.ctx, a.armToken, method, region.Endpoints().Azure+path, body); !slices.Contains(wanted, status) {
		a.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

// records returns the lines in which records of a category arrived for a cluster.
func (a *logAccount) records(category customerlog.Category, cluster string) ([]string, error) {
	base := region.Endpoints().Azure + "/" + a.name + "/" + category.Container()
	status, text := azureResponse(a.t, a.ctx, a.blobToken, http.MethodGet, base+"?restype=container&comp=list", "")
	if status != http.StatusOK {
		return nil, fmt.Errorf("listing the container: %d %s", status, text)
	}
	var lines []string
	for _, part := range strings.Split(text, "<Name>")[1:] {
		name, _, _ := strings.Cut(part, "</Name>")
		if !strings.HasPrefix(name, "resourceId="+strings.ToUpper(cluster)+"/y=") {
			continue
		}
		status, content := azureResponse(a.t, a.ctx, a.blobToken, http.MethodGet, base+"/"+name, "")
		if status != http.StatusOK {
			return nil, fmt.Errorf("reading %s: %d %s", name, status, content)
		}
		lines = append(lines, slices.Collect(strings.Lines(content))...)
	}
	if len(lines) == 0 {
		return nil, errors.New("no records arrived")
	}
	return lines, nil
}

// TestCustomerLogs: a customer creates a storage account and a diagnostic setting of a cluster. The audit events of a request with an admin
// credential of the customer, and the log of the API server, arrive in the account. They contain no Secret. A condition of the cluster states whether
// they arrive, while the account exists and while it does not.
func TestCustomerLogs(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	const subscription, secret = "11111111-1111-1111-1111-111111111111", "hunter2hunter2"
	ctx := withTimeout(t, 10*time.Minute)
	c := newCustomer(t, ctx, subscription, "logs")
	tokenFor := func(audience string) string { return secretToken(t, ctx, region.Endpoints().CredentialsFile, audience) }
	a := &logAccount{t: t, ctx: ctx, name: "customerlogs", armToken: tokenFor("https://management.azure.com"), blobToken: tokenFor("https://storage.azure.com")}
	group := "/subscriptions/" + subscription + "/resourceGroups/logs"
	account := group + "/providers/Microsoft.Storage/storageAccounts/" + a.name
	a.arm(http.MethodPut, group+"?api-version=2021-04-01", `{"location":"westus3"}`, http.StatusCreated, http.StatusOK)
	a.arm(http.MethodPut, account+"?api-version=2023-05-01", `{"location":"westus3"}`, http.StatusCreated)

	id := c.ClusterID("logs")
	must.Get(c.Put(ctx, id, c.ClusterBody("logs")))(t)
	body := must.Get(json.Marshal(customerlog.Setting{Properties: customerlog.SettingProperties{StorageAccountID: account,
		Logs: []customerlog.LogSelection{{CategoryGroup: "allLogs", Enabled: true}}}}))(t)
	setting := id + "/providers/Microsoft.Insights/diagnosticSettings/all?api-version=2021-05-01-preview"
	a.arm(http.MethodPut, setting, string(body), http.StatusCreated)

	k := withAdminCredential(t, ctx, c, id)
	must.Get(k.run(ctx, "create", "secret", "generic", "mine", "--namespace=default", "--from-literal=password="+secret))(t)
	eventually.Before(ctx, t, "the events of the request arrive", func() error {
		// Settings are read again when a log has grown.
		if _, err := k.run(ctx, "get", "secret", "mine", "--namespace=default"); err != nil {
			return err
		}
		for category, verbs := range map[customerlog.Category][]string{customerlog.KubeAudit: {"create", "get"}, customerlog.KubeAuditAdmin: {"create"}} {
			for _, verb := range verbs {
				if err := a.hasEvent(category, id, verb); err != nil {
					return err
				}
			}
		}
		_, err := a.records(customerlog.KubeAPIServer, id)
		return err
	})
	for _, category := range []customerlog.Category{customerlog.KubeAudit, customerlog.KubeAuditAdmin, customerlog.KubeAPIServer} {
		lines := must.Get(a.records(category, id))(t)
		for _, line := range lines {
			if strings.Contains(line, secret) || category == customerlog.KubeAuditAdmin && strings.Contains(line, `\"verb\":\"get\"`) {
				t.Errorf("%s has %s", category, line)
			}
		}
	}

	// A request makes the log grow: then lines wait, and settings are read again.
	awaitCondition := func(want string) {
		t.Helper()
		eventually.Before(ctx, t, "the condition LogsDelivered is "+want, func() error {
			if _, err := k.run(ctx, "get", "secret", "mine", "--namespace=default"); err != nil {
				return err
			}
			cluster, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
			if err != nil {
				return err
			}
			if got := conditionsOf(cluster.GenericResource)["LogsDelivered"]; got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
	awaitCondition("True AsExpected")
	a.arm(http.MethodDelete, account+"?api-version=2023-05-01", "", http.StatusOK, http.StatusAccepted)
	awaitCondition("False LogDestinationUnavailable")
	a.arm(http.MethodPut, account+"?api-version=2023-05-01", `{"location":"westus3"}`, http.StatusCreated)
	awaitCondition("True AsExpected")
	a.arm(http.MethodDelete, setting, "", http.StatusOK)
	awaitCondition("")
	if err := c.Delete(ctx, id); err != nil {
		t.Error(err)
	}
	a.arm(http.MethodDelete, group+"?api-version=2021-04-01", "", http.StatusOK, http.StatusAccepted)
}

// hasEvent returns an error unless an event of the customer's request for the Secret arrived.
func (a *logAccount) hasEvent(category customerlog.Category, cluster, verb string) error {
	lines, err := a.records(category, cluster)
	if err != nil {
		return err
	}
	for _, line := range lines {
		var record struct{ Properties struct{ Raw string } }
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Name string }
		}
		if err := errors.Join(json.Unmarshal([]byte(line), &record), json.Unmarshal([]byte(record.Properties.Raw), &event)); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if event.Verb == verb && event.ObjectRef.Resource == "secrets" && event.ObjectRef.Name == "mine" && strings.HasPrefix(event.User.Username, "system:customer-break-glass:") {
			return nil
		}
	}
	return fmt.Errorf("%d records of %s, and none of %s", len(lines), category, verb)
}

// withAdminCredential returns a kubectl with an admin credential of the customer.
func withAdminCredential(t *testing.T, ctx context.Context, c *customer.Customer, id string) kubectl {
	t.Helper()
	key, signing, err := credential.Request()
	if err != nil {
		t.Fatal(err)
	}
	var issued struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	must.Do(t, c.Act(ctx, id, "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, &issued))
	kubeconfig := must.Get(credential.WithKey([]byte(issued.Kubeconfig), key))(t)
	return withKubeconfig(t, kubeconfig)
}
