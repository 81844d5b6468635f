package alerts

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// minute returns a time in minutes after a start.
func minute(n int) time.Time {
	return time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

func TestFiring(t *testing.T) {
	tests := map[string]struct {
		reason  string
		minutes []int
		want    []Alert
	}{
		"None":         {"no point, no alert", nil, nil},
		"Continues":    {"the last point is that of the end of the period", []int{7, 8, 9, 10}, []Alert{{Start: minute(7)}}},
		"Just started": {"one point at the end", []int{10}, []Alert{{Start: minute(10)}}},
		"Ended":        {"no point at the end", []int{2, 3, 4}, []Alert{{Start: minute(2), End: minute(4)}}},
		"Twice":        {"a point is missing between", []int{2, 3, 5, 6}, []Alert{{Start: minute(2), End: minute(3)}, {Start: minute(5), End: minute(6)}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			series := &model.SampleStream{Metric: model.Metric{model.AlertNameLabel: "AgentSilent", "severity": "page", "shard": "mgmt-1"}}
			for _, m := range tc.minutes {
				series.Values = append(series.Values, model.SamplePair{Timestamp: model.TimeFromUnix(minute(m).Unix()), Value: 1})
			}
			for i := range tc.want {
				tc.want[i].Name, tc.want[i].Severity, tc.want[i].Shard = "AgentSilent", "page", "mgmt-1"
			}
			if diff := cmp.Diff(tc.want, firing(series, time.Minute, minute(10))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		url, scope string
		valid      bool
	}{
		"Plain":             {"http://127.0.0.1:9090", "", true},
		"With token":        {"https://w.westus3.prometheus.monitor.azure.com", "https://prometheus.monitor.azure.com/.default", true},
		"Token in clear":    {"http://prometheus:9090", "https://prometheus.monitor.azure.com/.default", false},
		"No scheme":         {"prometheus:9090", "", false},
		"With password":     {"https://a:b@prometheus", "", false},
		"Not a web address": {"file:///etc/passwd", "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := Check(tc.url, tc.scope); (err == nil) != tc.valid {
				t.Errorf("%s with scope %q: %v", tc.url, tc.scope, err)
			}
		})
	}
}

// TestOutage checks that a server that cannot answer makes alerts unavailable. The tests in test/drills have a real Prometheus.
func TestOutage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer server.Close()
	transport, err := Transport("")
	if err != nil {
		t.Fatal(err)
	}
	history, err := New(server.URL, transport)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := history.Of(t.Context(), adminv1.Cluster{UID: "u"}, minute(0), minute(10)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("the error is %v", err)
	}
}
