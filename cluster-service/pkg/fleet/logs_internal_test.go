package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/logdelivery"
)

func TestLogsDelivered(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	refused := logdelivery.Failure{Setting: "audit", Account: "one", Fault: logdelivery.Customer, Reason: "AccountNotFound", Since: since}
	busy := logdelivery.Failure{Setting: "all", Account: "two", Fault: logdelivery.Azure, Reason: "ServerBusy", Since: since}
	other := logdelivery.Failure{Setting: "workspace", Fault: logdelivery.Customer, Reason: logdelivery.UnsupportedDestination, Since: since}
	invalid := logdelivery.Failure{Setting: "wrong", Fault: logdelivery.Customer, Reason: logdelivery.InvalidSetting, Since: since}
	for name, c := range map[string]struct {
		failures []logdelivery.Failure
		want     condition
	}{
		"all arrive": {nil, condition{"LogsDelivered", "True", "AsExpected", ""}},
		"Azure is the cause": {[]logdelivery.Failure{busy}, condition{"LogsDelivered", "False", "LogDeliveryDelayed",
			`The service has not been able to deliver logs of the diagnostic setting "all" since 2026-11-25T10:00:00Z (ServerBusy). It repeats the delivery.`}},
		"Azure and an account": {[]logdelivery.Failure{busy, refused}, condition{"LogsDelivered", "False", "LogDestinationUnavailable",
			`The service has not been able to deliver logs of the diagnostic setting "all" since 2026-11-25T10:00:00Z (ServerBusy). It repeats the delivery. ` +
				`The storage account "one" of the diagnostic setting "audit" has not accepted logs since 2026-11-25T10:00:00Z (AccountNotFound).`}},
		"a setting and an account": {[]logdelivery.Failure{other, refused}, condition{"LogsDelivered", "False", "LogSettingUnusable",
			`The diagnostic setting "workspace" has no storage account: logs are delivered to storage accounts only. ` +
				`The storage account "one" of the diagnostic setting "audit" has not accepted logs since 2026-11-25T10:00:00Z (AccountNotFound).`}},
		"a setting": {[]logdelivery.Failure{invalid}, condition{"LogsDelivered", "False", "LogSettingUnusable", `The diagnostic setting "wrong" is invalid.`}},
	} {
		if diff := cmp.Diff(c.want, logsDelivered(&logdelivery.Report{Settings: 2, Failures: c.failures}), cmp.AllowUnexported(condition{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
