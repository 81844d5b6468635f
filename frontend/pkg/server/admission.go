package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/admission"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// DefaultLimits returns the limits of requests. A subscription may use an eighth of the seats. Together with maxBody the seats
// bound the memory of bodies; a request that waits has none.
func DefaultLimits() admission.Limits {
	return admission.Limits{Seats: 512, SeatsPerFlow: 64, Waiting: 1024, WaitingPerFlow: 128, MaxWait: 5 * time.Second}
}

// authenticationLimits returns the limits of authentications, which have one flow: the subscription in the path of a request
// means nothing before ARM is authenticated.
func authenticationLimits() admission.Limits {
	return admission.Limits{Seats: 256, SeatsPerFlow: 256, Waiting: 1024, WaitingPerFlow: 1024, MaxWait: 5 * time.Second}
}

// DefaultRate returns the limit of the requests of one principal outside of subscriptions. ARM limits the rates of subscriptions.
func DefaultRate() ratelimit.Limit { return ratelimit.Limit{Size: 1000, PerSecond: 100} }

// limitRate refuses requests outside of subscriptions, also to unknown paths, that one principal sends too often. The principal is that
// which ARM authenticated. Probes are not limited.
func limitRate(s *Server, _ context.Context, rq *request) error {
	if route := rq.match.route; route != nil && (route.health || validation.IsUUID(rq.param(subscriptionParam))) {
		return nil
	}
	_, after := s.rates.Take(truncated(rq.clientTenantID) + "/" + truncated(rq.clientID))
	if after == 0 {
		return nil
	}
	s.metrics.refused.WithLabelValues("rate").Inc()
	return apierror.New(apierror.Throttled, "The client sends too many requests outside of subscriptions. Try again later.").WithRetryAfter(after)
}

// admit waits for a seat of the request's subscription. Requests outside of subscriptions, and those with an invalid
// subscription ID, share one flow. Probes need no seat, so that a busy process is not restarted.
func admit(s *Server, ctx context.Context, rq *request) error {
	if rq.match.route.health {
		return nil
	}
	subscription := strings.ToLower(rq.param(subscriptionParam))
	if !validation.IsUUID(subscription) {
		subscription = ""
	}
	started := s.Now()
	release, err := s.requests.Acquire(ctx, subscription)
	s.metrics.waits.Observe(s.Now().Sub(started).Seconds())
	if err != nil {
		return s.refuse(ctx, err, subscription)
	}
	rq.release = release
	return nil
}

// leave returns the seat of the request.
func (rq *request) leave() {
	if rq.release != nil {
		rq.release()
	}
}

// refuse returns the error of a request that got no seat, and counts it.
func (s *Server) refuse(ctx context.Context, err error, subscription string) error {
	message, reason := "The service is busy. Try again later.", "busy"
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, admission.ErrFlowBusy) && subscription != "":
		message, reason = "The subscription has too many concurrent requests. Try again later.", "subscription"
	}
	s.metrics.refused.WithLabelValues(reason).Inc()
	return apierror.New(apierror.Throttled, "%s", message).WithRetryAfter(retryRefused).WithCause(err)
}

// retryRefused is the pause that a refused client should make.
const retryRefused = time.Second

// loadMetrics returns the numbers of requests that are handled and that wait.
func loadMetrics(requests *admission.Controller) []prometheus.Collector {
	executing := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_requests_executing", Help: "Number of requests that have a seat and are handled.",
	}, func() float64 {
		executing, _ := requests.Load()
		return float64(executing)
	})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_requests_waiting", Help: "Number of requests that wait for a seat.",
	}, func() float64 {
		_, waiting := requests.Load()
		return float64(waiting)
	})
	return []prometheus.Collector{executing, waiting}
}
