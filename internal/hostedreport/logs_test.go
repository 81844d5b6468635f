package hostedreport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var since = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

func failure(setting string) hostedreport.LogFailure {
	return hostedreport.LogFailure{Setting: setting, Account: "logs", Fault: hostedreport.LogFaultCustomer, Reason: "AccountNotFound", Since: since}
}

func TestLogReportSurvivesAnAnnotation(t *testing.T) {
	t.Parallel()
	for _, want := range []hostedreport.LogReport{
		{Settings: 1},
		{Settings: 2, Failures: []hostedreport.LogFailure{failure("audit"), failure("prüfung & <b>")}},
	} {
		text := must.Get(want.Encode())(t)
		if diff := cmp.Diff(&want, hostedreport.DecodeLogs(text)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestInvalidLogReportsAreIgnored(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"no annotation":     "",
		"no JSON":           "delivered",
		"no settings":       `{"settings":0}`,
		"a huge annotation": `{"settings":1` + strings.Repeat(" ", 17<<10) + `}`,
	} {
		if got := hostedreport.DecodeLogs(text); got != nil {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	for reason, edit := range map[string]func(*hostedreport.LogFailure){
		"an unknown fault":          func(f *hostedreport.LogFailure) { f.Fault = "nobody" },
		"a reason with a space":     func(f *hostedreport.LogFailure) { f.Reason = "not found" },
		"no reason":                 func(f *hostedreport.LogFailure) { f.Reason = "" },
		"no time":                   func(f *hostedreport.LogFailure) { f.Since = time.Time{} },
		"an account with a slash":   func(f *hostedreport.LogFailure) { f.Account = "a/b" },
		"a line break in a setting": func(f *hostedreport.LogFailure) { f.Setting = "a\nb" },
		"a long setting":            func(f *hostedreport.LogFailure) { f.Setting = strings.Repeat("x", 300) },
	} {
		invalid := failure("audit")
		edit(&invalid)
		text := must.Get(hostedreport.LogReport{Settings: 1, Failures: []hostedreport.LogFailure{invalid, failure("valid")}}.Encode())(t)
		want := &hostedreport.LogReport{Settings: 1, Failures: []hostedreport.LogFailure{failure("valid")}}
		if diff := cmp.Diff(want, hostedreport.DecodeLogs(text)); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
	var many []hostedreport.LogFailure
	for i := range 2 * hostedreport.MaxLogFailures {
		many = append(many, failure(fmt.Sprint(i)))
	}
	text := must.Get(hostedreport.LogReport{Settings: 10, Failures: many}.Encode())(t)
	if got := hostedreport.DecodeLogs(text); len(got.Failures) != hostedreport.MaxLogFailures {
		t.Errorf("%d failures", len(got.Failures))
	}
}

func TestTextOfOthersBecomesValid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"audit": "audit", "a\n\x00b\xff": "ab", strings.Repeat("ü", 300): strings.Repeat("ü", 260)} {
		if got := hostedreport.LogSettingName(text); got != want {
			t.Errorf("the name of %q is %q", text, got)
		}
	}
	for text, want := range map[string]string{"AccountNotFound": "AccountNotFound", "Service Unavailable": "ServiceUnavailable", "": "Unknown", "<b>": "Unknown"} {
		if got := hostedreport.LogReason(text); got != want {
			t.Errorf("the reason of %q is %q", text, got)
		}
	}
}

// FuzzDecodeLogs checks that every accepted report can be written again.
func FuzzDecodeLogs(f *testing.F) {
	f.Add(`{"settings":1}`)
	f.Add(`{"settings":1,"failures":[{"setting":"a","account":"logs","fault":"customer","reason":"AccountNotFound","since":"2026-11-25T10:00:00Z"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := hostedreport.DecodeLogs(text)
		if report == nil {
			return
		}
		again := must.Get(report.Encode())(t)
		if decoded := hostedreport.DecodeLogs(again); decoded == nil || len(decoded.Failures) != len(report.Failures) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
