package logdelivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/logdelivery"
)

var since = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

func failure(setting string) logdelivery.Failure {
	return logdelivery.Failure{Setting: setting, Account: "logs", Fault: logdelivery.Customer, Reason: "AccountNotFound", Since: since}
}

func TestReportSurvivesAnAnnotation(t *testing.T) {
	t.Parallel()
	for _, want := range []logdelivery.Report{
		{Settings: 1},
		{Settings: 2, Failures: []logdelivery.Failure{failure("audit"), failure("prüfung & <b>")}},
	} {
		text, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, logdelivery.Decode(text)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestInvalidReportsAreIgnored(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"no annotation":     "",
		"no JSON":           "delivered",
		"no settings":       `{"settings":0}`,
		"a huge annotation": `{"settings":1` + strings.Repeat(" ", 17<<10) + `}`,
	} {
		if got := logdelivery.Decode(text); got != nil {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	for reason, edit := range map[string]func(*logdelivery.Failure){
		"an unknown fault":          func(f *logdelivery.Failure) { f.Fault = "nobody" },
		"a reason with a space":     func(f *logdelivery.Failure) { f.Reason = "not found" },
		"no reason":                 func(f *logdelivery.Failure) { f.Reason = "" },
		"no time":                   func(f *logdelivery.Failure) { f.Since = time.Time{} },
		"an account with a slash":   func(f *logdelivery.Failure) { f.Account = "a/b" },
		"a line break in a setting": func(f *logdelivery.Failure) { f.Setting = "a\nb" },
		"a long setting":            func(f *logdelivery.Failure) { f.Setting = strings.Repeat("x", 300) },
	} {
		invalid := failure("audit")
		edit(&invalid)
		text, err := logdelivery.Report{Settings: 1, Failures: []logdelivery.Failure{invalid, failure("valid")}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		want := &logdelivery.Report{Settings: 1, Failures: []logdelivery.Failure{failure("valid")}}
		if diff := cmp.Diff(want, logdelivery.Decode(text)); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
	var many []logdelivery.Failure
	for i := range 2 * logdelivery.MaxFailures {
		many = append(many, failure(fmt.Sprint(i)))
	}
	text, err := logdelivery.Report{Settings: 10, Failures: many}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got := logdelivery.Decode(text); len(got.Failures) != logdelivery.MaxFailures {
		t.Errorf("%d failures", len(got.Failures))
	}
}

func TestTextOfOthersBecomesValid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"audit": "audit", "a\n\x00b\xff": "ab", strings.Repeat("ü", 300): strings.Repeat("ü", 260)} {
		if got := logdelivery.Name(text); got != want {
			t.Errorf("the name of %q is %q", text, got)
		}
	}
	for text, want := range map[string]string{"AccountNotFound": "AccountNotFound", "Service Unavailable": "ServiceUnavailable", "": "Unknown", "<b>": "Unknown"} {
		if got := logdelivery.Reason(text); got != want {
			t.Errorf("the reason of %q is %q", text, got)
		}
	}
}

// FuzzDecode checks that every accepted report can be written again.
func FuzzDecode(f *testing.F) {
	f.Add(`{"settings":1}`)
	f.Add(`{"settings":1,"failures":[{"setting":"a","account":"logs","fault":"customer","reason":"AccountNotFound","since":"2026-11-25T10:00:00Z"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := logdelivery.Decode(text)
		if report == nil {
			return
		}
		again, err := report.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if decoded := logdelivery.Decode(again); decoded == nil || len(decoded.Failures) != len(report.Failures) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
