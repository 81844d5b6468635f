package insidereport_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/insidereport"
)

var observed = time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC)

func TestReportSurvivesAnAnnotation(t *testing.T) {
	t.Parallel()
	want := insidereport.Report{State: insidereport.Unavailable, Since: observed.Add(-time.Minute), Check: "livez", Outcome: "etcd", Detail: "status 500: etcd",
		CertificateEnd: observed.Add(time.Hour), Observed: observed}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, insidereport.Decode(text)); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidReportsAreIgnored(t *testing.T) {
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
		if got := insidereport.Decode(text); got != nil {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

// FuzzDecode checks that every accepted report can be written again.
func FuzzDecode(f *testing.F) {
	f.Add(`{"state":"available","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z"}`)
	f.Add(`{"state":"unknown","since":"2026-11-24T15:00:00Z","observed":"2026-11-24T15:00:00Z","detail":"no service"}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := insidereport.Decode(text)
		if report == nil {
			return
		}
		again, err := report.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if decoded := insidereport.Decode(again); decoded == nil || !decoded.Same(insidereport.Report{State: report.State, Since: report.Since.Truncate(time.Millisecond),
			Outcome: report.Outcome, CertificateEnd: report.CertificateEnd}) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
