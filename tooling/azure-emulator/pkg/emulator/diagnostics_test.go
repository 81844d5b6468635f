package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

const (
	customerGroup   = "/subscriptions/" + subscription + "/resourceGroups/logs"
	customerAccount = customerGroup + "/providers/Microsoft.Storage/storageAccounts/customerlogs"
	hostedCluster   = customerGroup + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/one"
	settingsOfOne   = hostedCluster + "/providers/Microsoft.Insights/diagnosticSettings"
	settingVersion  = "?api-version=2021-05-01-preview"
)

// arms sends a request to Resource Manager and fails the test unless the response has a status and contains a text.
func arms(t *testing.T, azure *emulatortest.Azure, principal, method, path, body string, status int, text string) string {
	t.Helper()
	got, response := send(t, azure, principal, armAudience, method, path, body)
	if got != status || !strings.Contains(response, text) {
		t.Errorf("%s %s as %s: %d %s, want %d with %q", method, path, principal, got, response, status, text)
	}
	return response
}

// createAccount creates a storage account as the customer.
func createAccount(t *testing.T, azure *emulatortest.Azure, id string) {
	t.Helper()
	arms(t, azure, customerID, "PUT", customerGroup+"?api-version=2021-04-01", `{"location":"westus3"}`, http.StatusCreated, "")
	arms(t, azure, customerID, "PUT", id+"?api-version=2023-05-01", `{"location":"westus3"}`, http.StatusCreated, "")
}

// setting returns the body of a diagnostic setting.
func setting(account string, logs ...customerlog.LogSelection) string {
	text, err := json.Marshal(customerlog.Setting{Properties: customerlog.SettingProperties{StorageAccountID: account, Logs: logs}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func enabled(category customerlog.Category) customerlog.LogSelection {
	return customerlog.LogSelection{Category: string(category), Enabled: true}
}

func TestDiagnosticSettingsOfClusters(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{})
	createAccount(t, azure, customerAccount)
	valid := setting(customerAccount, enabled(customerlog.KubeAudit))

	arms(t, azure, customerID, "GET", settingsOfOne+settingVersion, "", http.StatusOK, `{"value":[]}`)
	arms(t, azure, customerID, "PUT", settingsOfOne+"/a"+settingVersion, valid, http.StatusCreated, `"category":"kube-audit"`)
	arms(t, azure, customerID, "PUT", settingsOfOne+"/a"+settingVersion, valid, http.StatusOK, "")
	arms(t, azure, customerID, "GET", settingsOfOne+"/A"+settingVersion, "", http.StatusOK, customerAccount)
	arms(t, azure, customerID, "GET", settingsOfOne+settingVersion, "", http.StatusOK, customerAccount)
	// A child of the cluster has settings of its own type, which are not the cluster's.
	arms(t, azure, customerID, "GET", hostedCluster+"2/providers/Microsoft.Insights/diagnosticSettings"+settingVersion, "", http.StatusOK, `{"value":[]}`)

	for name, c := range map[string]struct {
		scope, body string
		status      int
		text        string
	}{
		"an unknown category":   {hostedCluster, setting(customerAccount, customerlog.LogSelection{Category: "guard", Enabled: true}), 400, "properties.logs[0].category"},
		"no destination":        {hostedCluster, setting("", enabled(customerlog.KubeAudit)), 400, "a destination is required"},
		"an unknown account":    {hostedCluster, setting(customerAccount+"x", enabled(customerlog.KubeAudit)), 400, "was not found"},
		"a foreign account":     {hostedCluster, setting(emulatortest.Account, enabled(customerlog.KubeAudit)), 403, "LinkedAuthorizationFailed"},
		"the same destination":  {hostedCluster, setting(customerAccount, enabled(customerlog.KubeScheduler), enabled(customerlog.KubeAudit)), 409, "already used in diagnostic setting 'a' for category 'kube-audit'"},
		"another resource type": {networkID, valid, 501, "not emulated"},
	} {
		t.Run(name, func(t *testing.T) {
			arms(t, azure, customerID, "PUT", c.scope+"/providers/Microsoft.Insights/diagnosticSettings/b"+settingVersion, c.body, c.status, c.text)
		})
	}
	arms(t, azure, serviceID, "GET", settingsOfOne+settingVersion, "", http.StatusForbidden, "Microsoft.Insights/diagnosticSettings/read")
	arms(t, azure, serviceID, "PUT", settingsOfOne+"/a"+settingVersion, valid, http.StatusForbidden, "Microsoft.Insights/diagnosticSettings/write")

	for i, category := range customerlog.Categories()[1:5] {
		arms(t, azure, customerID, "PUT", fmt.Sprintf("%s/more%d%s", settingsOfOne, i, settingVersion), setting(customerAccount, enabled(category)), http.StatusCreated, "")
	}
	arms(t, azure, customerID, "PUT", settingsOfOne+"/sixth"+settingVersion, setting(customerAccount, enabled(customerlog.CAPIProvider)), http.StatusConflict, "which is the maximum")

	arms(t, azure, customerID, "DELETE", settingsOfOne+"/a"+settingVersion, "", http.StatusOK, "")
	arms(t, azure, customerID, "DELETE", settingsOfOne+"/a"+settingVersion, "", http.StatusNoContent, "")
	arms(t, azure, customerID, "GET", settingsOfOne+"/a"+settingVersion, "", http.StatusNotFound, "diagnostic setting 'a'")
}

// TestDiagnosticSettingsOfAKS checks that a cluster of AKS has settings with its own categories, and only for accounts that can get its logs.
func TestDiagnosticSettingsOfAKS(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := newGeneric(t, azure)
	account := func(name, location string, properties map[string]any) string {
		id := emulatortest.Group + "/providers/Microsoft.Storage/storageAccounts/" + name
		r := located(properties)
		r.Location = &location
		client.put(id, "2023-05-01", r)
		return id
	}
	firewall := func(bypass string) map[string]any {
		return map[string]any{"publicNetworkAccess": "Enabled", "networkAcls": map[string]any{"defaultAction": "Deny", "bypass": bypass}}
	}
	client.put(clusterID, aksVersion, located(map[string]any{"dnsPrefix": "svc"}))
	logs := account("hcpmaks", "westus3", firewall("AzureServices"))
	guard, audit := customerlog.LogSelection{Category: "guard", Enabled: true}, customerlog.LogSelection{Category: "kube-audit", Enabled: true}
	path := func(cluster, name string) string {
		return cluster + "/providers/Microsoft.Insights/diagnosticSettings/" + name + settingVersion
	}
	for range 2 {
		if status, body := sendOwner(t, azure, http.MethodPut, path(clusterID, "audit"), setting(logs, guard, audit)); status/100 != 2 {
			t.Fatalf("a setting: %d %s", status, body)
		}
	}
	for reason, c := range map[string]struct {
		path, body string
		status     int
		text       string
	}{
		"a cluster that does not exist":    {path(clusterID+"x", "b"), setting(logs, guard), 404, "was not found"},
		"a category of hosted clusters":    {path(clusterID, "b"), setting(logs, enabled(customerlog.CAPIProvider)), 400, "is not supported"},
		"no category":                      {path(clusterID, "b"), setting(logs), 400, "at least one category"},
		"an account that does not exist":   {path(clusterID, "b"), setting(logs+"x", guard), 400, "was not found"},
		"an account in another region":     {path(clusterID, "b"), setting(account("hcpmfar", "uksouth", nil), guard), 400, "must be in the region"},
		"an account without public access": {path(clusterID, "b"), setting(account("hcpmclosed", "westus3", map[string]any{"publicNetworkAccess": "Disabled"}), guard), 400, "does not admit trusted services"},
		"a firewall for everybody":         {path(clusterID, "b"), setting(account("hcpmwall", "westus3", firewall("None")), guard), 400, "does not admit trusted services"},
		"the same category twice":          {path(clusterID, "b"), setting(logs, guard), 409, "for category 'guard'"},
	} {
		if status, body := sendOwner(t, azure, http.MethodPut, c.path, c.body); status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s", reason, status, body)
		}
	}
}

// TestCreatedAccountsHaveBlobStorage: an account that a customer creates has Blob Storage until it is deleted. Another account with the name is
// empty.
func TestCreatedAccountsHaveBlobStorage(t *testing.T) {
	seed := emulatortest.Seed(zone)
	azure, err := emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = azure.Close() }()
	client := newGeneric(t, azure)
	const id = emulatortest.Group + "/providers/Microsoft.Storage/storageAccounts/customerlogs"
	url := azure.URL + "/customerlogs/insights-logs-kube-audit"
	logs := must.Get(container.NewClient(url, azure.Tokens, &container.ClientOptions{ClientOptions: azure.Options().ClientOptions}))(t)

	_, err = logs.Create(t.Context(), nil)
	wantError(t, err, http.StatusMisdirectedRequest, "MisdirectedRequest")
	client.put(id, "2023-05-01", located(nil))
	_, err = logs.Create(t.Context(), nil)
	must.Do(t, err)
	blob := logs.NewAppendBlobClient("log")
	_, err = blob.Create(t.Context(), nil)
	must.Do(t, err)
	must.Do(t, appendTo(t, blob, "line\n", nil))

	poller, err := client.BeginDeleteByID(t.Context(), id, "2023-05-01", nil)
	if err == nil {
		_, err = poller.PollUntilDone(t.Context(), pollFast)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, appendTo(t, blob, "line\n", nil), http.StatusMisdirectedRequest, "MisdirectedRequest")
	client.put(id, "2023-05-01", located(nil))
	wantError(t, appendTo(t, blob, "line\n", nil), http.StatusNotFound, "ContainerNotFound")
}

// TestForwarderOnlyAdds: the role of the log forwarder permits appends in the account of a customer, and nothing else there.
func TestForwarderOnlyAdds(t *testing.T) {
	role := customerlog.ForwarderRole()
	seed := emulatortest.Seed(zone)
	seed.Roles = []rbac.Role{{ID: role.ID, Name: role.Name, Actions: role.Actions, DataActions: role.DataActions}}
	seed.Assignments = []arm.SeedAssignment{
		{PrincipalID: serviceID, Role: role.ID, Scope: "/"},
		{PrincipalID: customerID, Role: arm.OwnerRole, Scope: "/subscriptions/" + subscription},
		{PrincipalID: customerID, Role: arm.BlobDataContributorRole, Scope: "/subscriptions/" + subscription},
	}
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed}))(t)
	defer func() { _ = azure.Close() }()
	createAccount(t, azure, customerAccount)
	arms(t, azure, serviceID, "GET", settingsOfOne+settingVersion, "", http.StatusOK, "")
	arms(t, azure, serviceID, "PUT", settingsOfOne+"/a"+settingVersion, setting(customerAccount, enabled(customerlog.KubeAudit)), http.StatusForbidden, "")
	arms(t, azure, serviceID, "GET", customerAccount+"?api-version=2023-05-01", "", http.StatusForbidden, "")

	as := func(principal string) *container.Client {
		return must.Get(container.NewClient(azure.URL+"/customerlogs/insights-logs-kube-audit", azure.Tokens.Principal(principal),
			&container.ClientOptions{ClientOptions: azure.Options().ClientOptions}))(t)
	}
	forwarder, customer := as(serviceID), as(customerID)
	_, err := forwarder.Create(t.Context(), nil)
	must.Do(t, err)
	blob := forwarder.NewAppendBlobClient("log")
	_, err = blob.Create(t.Context(), nil)
	must.Do(t, err)
	must.Do(t, appendTo(t, blob, "line\n", nil))
	const denied = "AuthorizationPermissionMismatch"
	_, err = forwarder.NewBlobClient("log").DownloadStream(t.Context(), nil)
	wantError(t, err, http.StatusForbidden, denied)
	_, err = forwarder.NewBlobClient("log").Delete(t.Context(), nil)
	wantError(t, err, http.StatusForbidden, denied)
	_, err = forwarder.NewBlockBlobClient("log").UploadBuffer(t.Context(), []byte("other"), nil)
	wantError(t, err, http.StatusForbidden, denied)
	_, err = forwarder.NewListBlobsFlatPager(nil).NextPage(t.Context())
	wantError(t, err, http.StatusForbidden, denied)
	_, err = forwarder.Delete(t.Context(), nil)
	wantError(t, err, http.StatusForbidden, denied)
	read, err := customer.NewBlobClient("log").DownloadStream(t.Context(), nil)
	must.Do(t, err)
	_ = read.Body.Close()
}
