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

var began = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// use returns a use of certificate n at a time after began.
func use(n int, after time.Duration, address string) hostedreport.CredentialUse {
	return hostedreport.CredentialUse{Fingerprint: fmt.Sprintf("%064x", n), User: "system:sre-break-glass:ada", First: began.Add(after), Last: began.Add(after),
		Addresses: []string{address}, Request: "list pods"}
}

func TestCredentialNoteReportsChanges(t *testing.T) {
	tests := map[string]struct {
		reason string
		next   hostedreport.CredentialUse
		want   bool
	}{
		"another credential": {"the first use of every credential is reported", use(2, time.Minute, "10.0.0.1"), true},
		"the same again":     {"requests within an hour are one use", use(1, time.Minute, "10.0.0.1"), false},
		"another address":    {"another person may have the credential", use(1, time.Minute, "10.0.0.2"), true},
		"after an hour":      {"the credential is still in use", use(1, time.Hour, "10.0.0.1"), true},
		"an earlier one":     {"a log was read late", use(1, -time.Minute, "10.0.0.1"), true},
		"other user": {"other users are not reported", hostedreport.CredentialUse{Fingerprint: strings.Repeat("a", 64), User: "system:admin", First: began, Last: began},
			false},
		"no fingerprint": {"the certificate is unknown", hostedreport.CredentialUse{User: "system:sre-break-glass:ada", First: began, Last: began}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			report := hostedreport.CredentialReport{}
			if !report.Note(use(1, 0, "10.0.0.1")) {
				t.Fatal("the first use is not reported")
			}
			if got := report.Note(tc.next); got != tc.want {
				t.Errorf("reported %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestCredentialReportIsBounded(t *testing.T) {
	report := hostedreport.CredentialReport{}
	for n := range 200 {
		report.Note(use(n, time.Duration(n)*time.Minute, "10.0.0.1"))
		report.Note(use(150, 0, fmt.Sprintf("10.0.1.%d", n)))
	}
	report.Forget(began.Add(200 * time.Minute))
	uses := report.Uses()
	if len(uses) != 64 || uses[0].Fingerprint != fmt.Sprintf("%064x", 199) {
		t.Errorf("%d uses are kept, the first of %s", len(uses), uses[0].Fingerprint)
	}
	if addresses := report[fmt.Sprintf("%064x", 150)].Addresses; len(addresses) != 8 {
		t.Errorf("%d addresses are kept", len(addresses))
	}
	text, err := report.Encode()
	if err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if diff := cmp.Diff(report, hostedreport.DecodeCredentials(text)); diff != "" {
		t.Errorf("the decoded report differs:\n%s", diff)
	}
	report.Forget(began.Add(hostedreport.Kept + 200*time.Minute))
	if len(report) != 0 {
		t.Errorf("%d uses of expired certificates are kept", len(report))
	}
}

// TestCredentialUsesMergeInAnyOrder notes a later use before an earlier one.
func TestCredentialUsesMergeInAnyOrder(t *testing.T) {
	report := hostedreport.CredentialReport{}
	report.Note(use(1, time.Hour, "10.0.0.1"))
	report.Note(use(1, 0, "10.0.0.2"))
	want := hostedreport.CredentialUse{Fingerprint: fmt.Sprintf("%064x", 1), User: "system:sre-break-glass:ada", First: began, Last: began.Add(time.Hour),
		Addresses: []string{"10.0.0.1", "10.0.0.2"}, Request: "list pods"}
	if diff := cmp.Diff([]hostedreport.CredentialUse{want}, report.Uses()); diff != "" {
		t.Error(diff)
	}
}

// FuzzDecodeCredentials decodes arbitrary annotations, because everybody with write access to a HostedCluster can set one.
func FuzzDecodeCredentials(f *testing.F) {
	report := hostedreport.CredentialReport{}
	report.Note(use(1, 0, "10.0.0.1"))
	text := must.Get(report.Encode())(f)
	f.Add(text)
	f.Add(`[{"fingerprint":"x"}]`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		decoded := hostedreport.DecodeCredentials(text)
		encoded := must.Get(decoded.Encode())(t)
		if diff := cmp.Diff(decoded, hostedreport.DecodeCredentials(encoded)); diff != "" {
			t.Error(diff)
		}
		for _, u := range decoded.Uses() {
			if hostedreport.CredentialClass(u.User) == "" || len(u.Fingerprint) != 64 || strings.ContainsAny(u.Request+u.User, "\n\x00") {
				t.Errorf("accepted %+v", u)
			}
		}
	})
}
