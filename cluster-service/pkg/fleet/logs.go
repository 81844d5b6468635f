package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// logsDelivered returns the condition LogsDelivered of a report. If there are several failures, its reason is that of a failure that the
// customer can end.
func logsDelivered(report *hostedreport.LogReport) condition {
	if len(report.Failures) == 0 {
		return condition{clusterstatus.LogsDelivered, "True", "AsExpected", ""}
	}
	reason := clusterstatus.LogDeliveryDelayed
	var sentences []string
	for _, f := range report.Failures {
		sentences = append(sentences, undelivered(f))
		switch {
		case f.Reason == hostedreport.LogSettingInvalid || f.Reason == hostedreport.LogDestinationUnsupported:
			reason = clusterstatus.LogSettingUnusable
		case f.Fault == hostedreport.LogFaultCustomer && reason == clusterstatus.LogDeliveryDelayed:
			reason = clusterstatus.LogDestinationUnavailable
		}
	}
	return condition{clusterstatus.LogsDelivered, "False", reason, strings.Join(sentences, " ")}
}

// undelivered returns a sentence for the customer about a failure.
func undelivered(f hostedreport.LogFailure) string {
	switch f.Reason {
	case hostedreport.LogSettingInvalid:
		return fmt.Sprintf("The diagnostic setting %q is invalid.", f.Setting)
	case hostedreport.LogDestinationUnsupported:
		return fmt.Sprintf("The diagnostic setting %q has no storage account: logs are delivered to storage accounts only.", f.Setting)
	}
	since := f.Since.UTC().Format(time.RFC3339)
	if f.Fault == hostedreport.LogFaultCustomer {
		return fmt.Sprintf("The storage account %q of the diagnostic setting %q has not accepted logs since %s (%s).", f.Account, f.Setting, since, f.Reason)
	}
	return fmt.Sprintf("The service has not been able to deliver logs of the diagnostic setting %q since %s (%s). It repeats the delivery.", f.Setting, since, f.Reason)
}
