package hostedreport

import (
	"regexp"
	"strings"
	"time"
)

// LogAnnotation is the annotation of a HostedCluster with its LogReport.
const LogAnnotation = "logs.hcpmesh.io/delivery"

const (
	// MaxLogFailures is the maximum number of failures in a report, one for each diagnostic setting.
	MaxLogFailures = 5
	// maxLogSettingName is the maximum length of the name of a diagnostic setting in Azure Monitor, in characters.
	maxLogSettingName = 260
	// maxEncodedLogs is the maximum size of an annotation that is decoded.
	maxEncodedLogs = 16 << 10
)

// LogFault names who has caused a failure.
type LogFault string

// The faults.
const (
	LogFaultCustomer LogFault = "customer"
	LogFaultAzure    LogFault = "azure"
	LogFaultService  LogFault = "service"
)

// The reasons of failures that are found before anything is sent. All other reasons are error codes of Azure.
const (
	// LogSettingInvalid means that Resource Manager accepted a setting that the forwarder cannot use.
	LogSettingInvalid = "InvalidSetting"
	// LogDestinationUnsupported means that a setting has no storage account, but another destination.
	LogDestinationUnsupported = "UnsupportedDestination"
)

// LogFailure describes why the logs of a diagnostic setting do not arrive.
type LogFailure struct {
	Setting string `json:"setting"`
	// Account is the name of the storage account. It is empty if the setting has none.
	Account string   `json:"account,omitempty"`
	Fault   LogFault `json:"fault"`
	// Reason is a word: an error code of Azure, or one of the reasons of this package.
	Reason string `json:"reason"`
	// Since is when the oldest line that has not arrived was read, or when the setting was first found to be unusable.
	Since time.Time `json:"since"`
}

// A reason becomes part of an ARM response, as an account does.
var (
	logReason  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)
	logAccount = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
)

func (f *LogFailure) valid() bool {
	switch f.Fault {
	case LogFaultCustomer, LogFaultAzure, LogFaultService:
	default:
		return false
	}
	return f.Setting == LogSettingName(f.Setting) && (f.Account == "" || logAccount.MatchString(f.Account)) && logReason.MatchString(f.Reason) && f.Since.Year() > 2000 && f.Since.Year() < 3000
}

// LogSettingName returns the name of a diagnostic setting as reports have it: without characters that are not printable, and not longer than Azure permits.
func LogSettingName(setting string) string {
	printable := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(setting, ""))
	if runes := []rune(printable); len(runes) > maxLogSettingName {
		return string(runes[:maxLogSettingName])
	}
	return printable
}

// LogReason returns an error code as reports have it; Unknown for one that is not a word.
func LogReason(code string) string {
	if word := strings.ReplaceAll(code, " ", ""); logReason.MatchString(word) {
		return word
	}
	return "Unknown"
}

// LogReport states whether the logs of a cluster arrive at their destinations. Cluster Service shows it to the customer. It contains nothing of the
// logs. A cluster without a diagnostic setting that selects logs has no report.
type LogReport struct {
	// Settings is the number of diagnostic settings that select logs, at least 1.
	Settings int `json:"settings"`
	// Failures are the settings whose logs do not arrive, by name.
	Failures []LogFailure `json:"failures,omitempty"`
}

// Encode returns the annotation's value. Times have the precision of seconds.
func (r LogReport) Encode() (string, error) {
	failures := make([]LogFailure, len(r.Failures))
	for i, f := range r.Failures {
		f.Since = f.Since.UTC().Truncate(time.Second)
		failures[i] = f
	}
	r.Failures = failures
	return encode("the report of the delivery of logs", r)
}

// DecodeLogs reads the annotation's value. The value comes from outside: DecodeLogs returns nil for one that is missing or invalid, and ignores invalid
// failures.
func DecodeLogs(text string) *LogReport {
	var report LogReport
	if !decode(text, maxEncodedLogs, &report) || report.Settings < 1 {
		return nil
	}
	var valid []LogFailure
	for _, f := range report.Failures {
		if f.valid() && len(valid) < MaxLogFailures {
			valid = append(valid, f)
		}
	}
	report.Failures = valid
	return &report
}
