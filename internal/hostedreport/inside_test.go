package hostedreport_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var observed = time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC)

func TestInsideReportSurvivesAnAnnotation(t *testing.T) {
	t.Parallel()
	want := hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Since: observed.Add(-time.Minute), Check: "livez", Outcome: "etcd", Detail: "status 500: etcd",
		CertificateEnd: observed.Add(time.Hour), Observed: observed}
	text := must.Get(want.Encode())(t)
	if diff := cmp.Diff(&want, hostedreport.DecodeInside(text)); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidInsideReportsAreIgnored(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"no annotation":            "",
		"no JSON":                  "available",
		"an unknown state":         `{"state":"fine","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z"}`,
		"no time":                  `{"state":"available","since":"2026-11-24T15:00:00Z"}`,
		"a long detail":            `{"state":"unavailable","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z","detail":"` + strings.Repeat("x", 300) + `"}`,
		"a line break in a detail": `{"state":"unavailable","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z","detail":"a\nb"}`,
		"a huge annotation":        `{"state":"available","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z"` + strings.Repeat(" ", 4<<10) + `}`,
	} {
		if got := hostedreport.DecodeInside(text); got != nil {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

// FuzzDecodeInside checks that every accepted report can be written again.
func FuzzDecodeInside(f *testing.F) {
	f.Add(`{"state":"available","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z"}`)
	f.Add(`{"state":"unknown","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z","detail":"no service"}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := hostedreport.DecodeInside(text)
		if report == nil {
			return
		}
		again := must.Get(report.Encode())(t)
		if decoded := hostedreport.DecodeInside(again); decoded == nil || !decoded.Same(hostedreport.InsideReport{State: report.State, Since: report.Since.Truncate(time.Millisecond),
			Outcome: report.Outcome, CertificateEnd: report.CertificateEnd}) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
