package customerlog

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const clusterID = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/one"

var at = time.Date(2026, 3, 1, 8, 30, 0, 123456700, time.UTC)

func TestBlobNameHasTheHourAndTheResource(t *testing.T) {
	want := "resourceId=" + strings.ToUpper(clusterID) + "/y=2026/m=03/d=01/h=08/m=00/PT1H.json"
	if got := BlobName(clusterID, at); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := BlobName(clusterID, at.In(time.FixedZone("", 3600))); got != want {
		t.Errorf("in another time zone: %s", got)
	}
	if got := KubeAudit.Container(); got != "insights-logs-kube-audit" {
		t.Error(got)
	}
}

func TestRecordsAreLinesOfJSON(t *testing.T) {
	for _, raw := range []string{`{"a":"b"}`, "line\nwith\x00control\u2028", "invalid \xff\xfe UTF-8", ""} {
		line := Record{Category: KubeAudit, ResourceID: clusterID, Location: "westus3"}.Encode(at, []byte(raw))
		if strings.Count(string(line), "\n") != 1 || !strings.HasSuffix(string(line), "\n") {
			t.Errorf("%q is not one line", line)
		}
		var record map[string]any
		must.Do(t, json.Unmarshal(line, &record))
		if record["time"] != "2026-03-01T08:30:00.1234567Z" || record["resourceId"] != strings.ToUpper(clusterID) || record["category"] != "kube-audit" ||
			record["operationName"] != "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/kube-apiserver/audit" || record["location"] != "westus3" || record["level"] != "Informational" {
			t.Errorf("%s", line)
		}
		if got := record["properties"].(map[string]any)["raw"]; got != strings.ToValidUTF8(raw, "\uFFFD") {
			t.Errorf("raw %q, want %q", got, raw)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	const account = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/customer"
	logs := []LogSelection{{Category: "kube-audit", Enabled: true}}
	for name, c := range map[string]struct {
		properties SettingProperties
		field      string
	}{
		"a category":                  {SettingProperties{StorageAccountID: account, Logs: logs}, ""},
		"a group":                     {SettingProperties{StorageAccountID: account, Logs: []LogSelection{{CategoryGroup: "allLogs", Enabled: true}}}, ""},
		"another destination":         {SettingProperties{WorkspaceID: "/subscriptions/s/w", Logs: logs}, ""},
		"disabled metrics":            {SettingProperties{StorageAccountID: account, Logs: logs, Metrics: []MetricSelection{{Category: "AllMetrics"}}}, ""},
		"no destination":              {SettingProperties{Logs: logs}, "properties"},
		"not an account":              {SettingProperties{StorageAccountID: "customer", Logs: logs}, "properties.storageAccountId"},
		"a path in the account":       {SettingProperties{StorageAccountID: account + "/../other", Logs: logs}, "properties.storageAccountId"},
		"a host in the account":       {SettingProperties{StorageAccountID: account + ".example.com", Logs: logs}, "properties.storageAccountId"},
		"no categories":               {SettingProperties{StorageAccountID: account}, "properties.logs"},
		"an unknown category":         {SettingProperties{StorageAccountID: account, Logs: append(slices.Clone(logs), LogSelection{Category: "guard"})}, "properties.logs[1].category"},
		"an unknown group":            {SettingProperties{StorageAccountID: account, Logs: []LogSelection{{CategoryGroup: "all"}}}, "properties.logs[0].categoryGroup"},
		"a category and a group":      {SettingProperties{StorageAccountID: account, Logs: []LogSelection{{Category: "kube-audit", CategoryGroup: "audit"}}}, "properties.logs[0].category"},
		"neither category nor group":  {SettingProperties{StorageAccountID: account, Logs: []LogSelection{{Enabled: true}}}, "properties.logs[0].category"},
		"metrics, which do not exist": {SettingProperties{StorageAccountID: account, Logs: logs, Metrics: []MetricSelection{{Category: "AllMetrics", Enabled: true}}}, "properties.metrics[0].category"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.properties.Validate()
			var invalid *InvalidError
			if errors.As(err, &invalid) != (c.field != "") || invalid != nil && invalid.Field != c.field {
				t.Errorf("%v, want an error of the field %q", err, c.field)
			}
		})
	}
}

func TestEnabledExpandsGroups(t *testing.T) {
	for name, c := range map[string]struct {
		logs []LogSelection
		want []Category
	}{
		"all":      {[]LogSelection{{CategoryGroup: "allLogs", Enabled: true}}, Categories()},
		"audit":    {[]LogSelection{{CategoryGroup: "audit", Enabled: true}, {Category: "kube-audit", Enabled: true}}, []Category{KubeAudit, KubeAuditAdmin}},
		"disabled": {[]LogSelection{{Category: "kube-audit"}, {CategoryGroup: "allLogs"}}, []Category{}},
		"unknown":  {[]LogSelection{{Category: "guard", Enabled: true}, {Category: "kube-scheduler", Enabled: true}}, []Category{KubeScheduler}},
	} {
		if got := (&SettingProperties{Logs: c.logs}).Enabled(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// event returns a line of an audit log.
func event(resource, group, subresource, verb, bodies string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","stage":"ResponseComplete","requestURI":"/api","verb":"` + verb +
		`","objectRef":{"resource":"` + resource + `","apiGroup":"` + group + `","subresource":"` + subresource + `"},` + bodies + `"stageTimestamp":"2026-03-01T08:30:00.123456Z"}`
}

func TestParseAuditRemovesBodiesOfSecretResources(t *testing.T) {
	const bodies = `"requestObject":{"data":"hunter2"},"responseObject":{"data":"hunter2"},`
	for name, c := range map[string]struct {
		line   string
		secret bool
	}{
		"a Secret":             {event("secrets", "", "", "create", bodies), true},
		"the status of one":    {event("secrets", "", "status", "patch", bodies), true},
		"a ConfigMap":          {event("configmaps", "", "", "create", bodies), true},
		"a token":              {event("serviceaccounts", "", "token", "create", bodies), true},
		"a review of a token":  {event("tokenreviews", "authentication.k8s.io", "", "create", bodies), true},
		"an OAuth token":       {event("oauthaccesstokens", "oauth.openshift.io", "", "create", bodies), true},
		"another case":         {event("secrets", "", "", "create", `"RequestObject":{"data":"hunter2"},`), true},
		"a pod":                {event("pods", "", "", "create", bodies), false},
		"a kind named secrets": {event("secrets", "example.com", "", "create", bodies), false},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := must.Get(ParseAudit([]byte(c.line)))(t)
			if strings.Contains(string(parsed.Line), "hunter2") == c.secret {
				t.Errorf("%s", parsed.Line)
			}
			if !c.secret && string(parsed.Line) != c.line {
				t.Errorf("the line was changed: %s", parsed.Line)
			}
			if again, err := ParseAudit(parsed.Line); err != nil || !again.Time.Equal(parsed.Time) || again.Time.IsZero() {
				t.Errorf("the result is not an event: %v", err)
			}
		})
	}
}

func TestParseAuditSeparatesChanges(t *testing.T) {
	for verb, changes := range map[string]bool{"get": false, "list": false, "watch": false, "create": true, "patch": true, "delete": true, "deletecollection": true, "impersonate": true} {
		if parsed, err := ParseAudit([]byte(event("pods", "", "", verb, ""))); err != nil || parsed.Changes != changes {
			t.Errorf("%s: %v, %v", verb, parsed.Changes, err)
		}
	}
}

func FuzzParseAudit(f *testing.F) {
	f.Add([]byte(event("secrets", "", "", "create", `"requestObject":{"data":"hunter2"},`)))
	f.Add([]byte(`{"kind":"Event","kind":"Other","auditID":"a","verb":"get"}`))
	f.Add([]byte("I0301 08:30:00 not JSON"))
	f.Fuzz(func(t *testing.T, line []byte) {
		parsed, err := ParseAudit(line)
		if err != nil {
			return
		}
		encoded := Record{Category: KubeAudit, ResourceID: clusterID}.Encode(parsed.Time, parsed.Line)
		if !json.Valid(encoded) {
			t.Errorf("%q is not JSON", encoded)
		}
	})
}
