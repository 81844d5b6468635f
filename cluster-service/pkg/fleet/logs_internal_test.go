package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

func TestLogsDelivered(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	refused := hostedreport.LogFailure{Setting: "audit", Account: "one", Fault: hostedreport.LogFaultCustomer, Reason: "AccountNotFound", Since: since}
	busy := hostedreport.LogFailure{Setting: "all", Account: "two", Fault: hostedreport.LogFaultAzure, Reason: "ServerBusy", Since: since}
	other := hostedreport.LogFailure{Setting: "workspace", Fault: hostedreport.LogFaultCustomer, Reason: hostedreport.LogDestinationUnsupported, Since: since}
	invalid := hostedreport.LogFailure{Setting: "wrong", Fault: hostedreport.LogFaultCustomer, Reason: hostedreport.LogSettingInvalid, Since: since}
	for name, c := range map[string]struct {
		failures []hostedreport.LogFailure
		want     condition
	}{
		"all arrive": {nil, condition{"LogsDelivered", "True", "AsExpected", ""}},
		"Azure is the cause": {[]hostedreport.LogFailure{busy}, condition{"LogsDelivered", "False", "LogDeliveryDelayed",
			`The service has not been able to deliver logs of the diagnostic setting "all" since 2026-11-25T10:00:00Z (ServerBusy). It repeats the delivery.`}},
		"Azure and an account": {[]hostedreport.LogFailure{busy, refused}, condition{"LogsDelivered", "False", "LogDestinationUnavailable",
			`The service has not been able to deliver logs of the diagnostic setting "all" since 2026-11-25T10:00:00Z (ServerBusy). It repeats the delivery. ` +
				`The storage account "one" of the diagnostic setting "audit" has not accepted logs since 2026-11-25T10:00:00Z (AccountNotFound).`}},
		"a setting and an account": {[]hostedreport.LogFailure{other, refused}, condition{"LogsDelivered", "False", "LogSettingUnusable",
			`The diagnostic setting "workspace" has no storage account: logs are delivered to storage accounts only. ` +
				`The storage account "one" of the diagnostic setting "audit" has not accepted logs since 2026-11-25T10:00:00Z (AccountNotFound).`}},
		"a setting": {[]hostedreport.LogFailure{invalid}, condition{"LogsDelivered", "False", "LogSettingUnusable", `The diagnostic setting "wrong" is invalid.`}},
	} {
		if diff := cmp.Diff(c.want, logsDelivered(&hostedreport.LogReport{Settings: 2, Failures: c.failures}), cmp.AllowUnexported(condition{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
