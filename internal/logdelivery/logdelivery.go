// Package logdelivery defines how a management cluster reports whether the logs of a cluster arrive at their destinations: in an annotation
// of the HostedCluster, which Cluster Service reads with its status and shows to the customer. The log forwarder writes the annotation when
// the Report changes. A report is bounded, and contains nothing of the logs.
package logdelivery

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Annotation is the annotation of a HostedCluster with its report.
const Annotation = "logs.hcpmesh.io/delivery"

const (
	// MaxFailures is the maximum number of failures in a report, one for each diagnostic setting.
	MaxFailures = 5
	// maxName is the maximum length of the name of a diagnostic setting in Azure Monitor, in characters.
	maxName = 260
	// maxEncoded is the maximum size of an annotation that is decoded.
	maxEncoded = 16 << 10
)

// Fault names who has caused a failure.
type Fault string

// The faults.
const (
	Customer Fault = "customer"
	Azure    Fault = "azure"
	Service  Fault = "service"
)

// The reasons of failures that are found before anything is sent. All other reasons are error codes of Azure.
const (
	// InvalidSetting means that Resource Manager accepted a setting that the forwarder cannot use.
	InvalidSetting = "InvalidSetting"
	// UnsupportedDestination means that a setting has no storage account, but another destination.
	UnsupportedDestination = "UnsupportedDestination"
)

// Failure describes why the logs of a diagnostic setting do not arrive.
type Failure struct {
	Setting string `json:"setting"`
	// Account is the name of the storage account. It is empty if the setting has none.
	Account string `json:"account,omitempty"`
	Fault   Fault  `json:"fault"`
	// Reason is a word: an error code of Azure, or one of the reasons of this package.
	Reason string `json:"reason"`
	// Since is when the oldest line that has not arrived was read, or when the setting was first found to be unusable.
	Since time.Time `json:"since"`
}

// A reason becomes part of an ARM response, as an account does.
var (
	reason  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)
	account = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
)

func (f *Failure) valid() bool {
	switch f.Fault {
	case Customer, Azure, Service:
	default:
		return false
	}
	return f.Setting == Name(f.Setting) && (f.Account == "" || account.MatchString(f.Account)) && reason.MatchString(f.Reason) && f.Since.Year() > 2000 && f.Since.Year() < 3000
}

// Name returns the name of a diagnostic setting as reports have it: without characters that are not printable, and not longer than Azure permits.
func Name(setting string) string {
	printable := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(setting, ""))
	if runes := []rune(printable); len(runes) > maxName {
		return string(runes[:maxName])
	}
	return printable
}

// Reason returns an error code as reports have it; Unknown for one that is not a word.
func Reason(code string) string {
	if word := strings.ReplaceAll(code, " ", ""); reason.MatchString(word) {
		return word
	}
	return "Unknown"
}

// Report states whether the logs of a cluster arrive. A cluster without a diagnostic setting that selects logs has no report.
type Report struct {
	// Settings is the number of diagnostic settings that select logs, at least 1.
	Settings int `json:"settings"`
	// Failures are the settings whose logs do not arrive, by name.
	Failures []Failure `json:"failures,omitempty"`
}

// Encode returns the annotation's value. Times have the precision of seconds.
func (r Report) Encode() (string, error) {
	failures := make([]Failure, len(r.Failures))
	for i, f := range r.Failures {
		f.Since = f.Since.UTC().Truncate(time.Second)
		failures[i] = f
	}
	r.Failures = failures
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode the report of the delivery of logs: %w", err)
	}
	return string(text), nil
}

// Decode reads the annotation's value. The value comes from outside: Decode returns nil for one that is missing or invalid, and ignores invalid
// failures.
func Decode(text string) *Report {
	if text == "" || len(text) > maxEncoded {
		return nil
	}
	var report Report
	if json.Unmarshal([]byte(text), &report) != nil || report.Settings < 1 {
		return nil
	}
	var valid []Failure
	for _, f := range report.Failures {
		if f.valid() && len(valid) < MaxFailures {
			valid = append(valid, f)
		}
	}
	report.Failures = valid
	return &report
}
