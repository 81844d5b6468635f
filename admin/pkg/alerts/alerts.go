// Package alerts reads from Prometheus, or from an Azure Monitor workspace, which alerts fire and which fired for a cluster. It reads and changes
// the silences of Alertmanager.
package alerts

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	// maxPoints is the number of points of a series that History requests. Prometheus answers at most 11,000.
	maxPoints = 10_000
	// minStep is the resolution of short periods. Rules are evaluated no more often.
	minStep = 15 * time.Second
	// maxSeries is the number of series that History requests.
	maxSeries = 200
	// maxResponse bounds the length of an answer, in bytes.
	maxResponse = 64 << 20
)

// Alert is a time in which an alert fired without interruption.
type Alert struct {
	// Name is the name of the rule, and Severity its label severity.
	Name, Severity string
	// Shard is the provision shard that the alert is about; empty for alerts about the region. Cluster is true for alerts about the cluster.
	Shard   string
	Cluster bool
	// Concern is the concern that the alert is about, if it is about all clusters with a concern. The cluster had it while the alert fired.
	Concern string
	// Start is when the alert began to fire, or the beginning of the period if it fired then. End is when it ended; zero if it fired at the end of the
	// period. Both are accurate to the step of the query.
	Start, End time.Time
}

// History answers which alerts fired.
type History struct{ api promv1.API }

// New returns a History that asks the Prometheus API at a URL. transport adds the credentials that the API needs.
func New(url string, transport http.RoundTripper) (*History, error) {
	client, err := api.NewClient(api.Config{Address: url, RoundTripper: &bounded{transport}})
	if err != nil {
		return nil, err
	}
	return &History{promv1.NewAPI(client)}, nil
}

// Of returns the alerts about a cluster, about a concern that it had, about its provision shard, which may be empty, and the pages about the
// region, that fired within a period. Alerts that fired for less than the step, which is a ten-thousandth of the period and at least 15 seconds, can be missing.
func (h *History) Of(ctx context.Context, cluster adminv1.Cluster, from, to time.Time) ([]Alert, error) {
	step := max(minStep, time.Duration(math.Ceil(to.Sub(from).Seconds()/maxPoints))*time.Second)
	value, _, err := h.api.QueryRange(ctx, selector(cluster), promv1.Range{Start: from, End: to, Step: step}, promv1.WithLimit(maxSeries))
	if err != nil {
		return nil, unavailable(err)
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, unavailable(fmt.Errorf("the answer is a %s, not a matrix", value.Type()))
	}
	var alerts []Alert
	for _, series := range matrix {
		alerts = append(alerts, firing(series, step, to)...)
	}
	return alerts, nil
}

func unavailable(cause error) error {
	return apierror.New(apierror.Unavailable, "Prometheus did not answer which alerts fired.").WithCause(cause)
}

// selector returns the query for the alerts that concern a cluster. Prometheus exports ALERTS for each alert that is pending or fires.
func selector(cluster adminv1.Cluster) string {
	query := fmt.Sprintf(`ALERTS{alertstate="firing",cluster_uid=%[1]q} or ALERTS{alertstate="firing",severity="page",cluster_uid="",shard=""}`+
		` or ALERTS{alertstate="firing",cluster_uid="",shard="",concern!=""} and on (concern) monitor_cluster_concern{cluster_uid=%[1]q}`, cluster.UID)
	if cluster.ProvisionShard != "" {
		query += fmt.Sprintf(` or ALERTS{alertstate="firing",cluster_uid="",shard=%q}`, cluster.ProvisionShard)
	}
	return query
}

// firing returns the times in which an alert fired. A missing point ends one.
func firing(series *model.SampleStream, step time.Duration, to time.Time) []Alert {
	var alerts []Alert
	var last time.Time
	for _, point := range series.Values {
		at := point.Timestamp.Time().UTC()
		if last.IsZero() || at.Sub(last) > step {
			if n := len(alerts); n > 0 {
				alerts[n-1].End = last
			}
			alerts = append(alerts, Alert{
				Name: string(series.Metric[model.AlertNameLabel]), Severity: string(series.Metric["severity"]),
				Shard: string(series.Metric["shard"]), Cluster: series.Metric["cluster_uid"] != "",
				Concern: string(series.Metric["concern"]), Start: at,
			})
		}
		last = at
	}
	if n := len(alerts); n > 0 && to.Sub(last) > step {
		alerts[n-1].End = last
	}
	return alerts
}

// bounded is a transport that cuts responses which are too long.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &struct {
		io.Reader
		io.Closer
	}{http.MaxBytesReader(nil, response.Body, maxResponse), response.Body}
	return response, nil
}
