package azure

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
)

const (
	// sizesPeriod and quotasPeriod are how long an answer of Azure Compute is used, and unreadPeriod how long a failure is.
	sizesPeriod  = 10 * time.Minute
	quotasPeriod = time.Minute
	unreadPeriod = time.Minute
	// maxUnread bounds the pause that Azure requests with a failure.
	maxUnread = time.Hour
	// computeTimeout bounds the requests for one list. The worker stores the outcomes of the cluster's other steps afterwards.
	computeTimeout = 5 * time.Second
	// maxAnswers is the maximum number of stored answers of a kind.
	maxAnswers = 1000
)

// Capacity reads the sizes and quotas of subscriptions, with one request per subscription, region, kind and period for all clusters. Its methods are
// safe for concurrent use.
type Capacity struct {
	sizes    *answers[map[string]Size]
	quotas   *answers[map[string]Quota]
	requests *prometheus.CounterVec
}

// NewCapacity returns a Capacity. Now returns the time that decides how long an answer is used.
func NewCapacity(clients Clients, now func() time.Time) *Capacity {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_azure_capacity_requests_total",
		Help: "Reads of sizes and quotas of subscriptions from Azure Compute, by kind and HTTP status; the status is 0 without a usable response."}, []string{"kind", "status"})
	return &Capacity{
		sizes: &answers[map[string]Size]{kind: "sizes", period: sizesPeriod, clients: clients, read: Compute.Sizes, now: now, requests: requests,
			byPlace: map[place]answer[map[string]Size]{}},
		quotas: &answers[map[string]Quota]{kind: "quotas", period: quotasPeriod, clients: clients, read: Compute.Quotas, now: now, requests: requests,
			byPlace: map[place]answer[map[string]Quota]{}},
		requests: requests,
	}
}

// place is a region of Azure as a subscription sees it.
type place struct{ subscription, location string }

// answer is what Azure returned, or that it returned nothing usable.
type answer[T any] struct {
	value T
	err   error
	// until is when the next request is sent.
	until time.Time
}

// answers are the last answers of a kind.
type answers[T any] struct {
	kind     string
	period   time.Duration
	clients  Clients
	read     func(client Compute, ctx context.Context, location string) (T, error)
	now      func() time.Time
	requests *prometheus.CounterVec

	reading singleflight.Group
	mu      sync.Mutex
	byPlace map[place]answer[T]
}

// get returns the last answer for a subscription and a region, and reads it again after the period. Concurrent callers share one request.
func (a *answers[T]) get(ctx context.Context, subscription, location string) answer[T] {
	at := place{strings.ToLower(subscription), strings.ToLower(location)}
	if last, ok := a.last(at); ok {
		return last
	}
	found, _, _ := a.reading.Do(at.subscription+"/"+at.location, func() (any, error) {
		if last, ok := a.last(at); ok {
			return last, nil
		}
		// Other callers wait for the answer too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), computeTimeout)
		defer cancel()
		value, err := a.request(ctx, at)
		result := answer[T]{value: value, err: err, until: a.now().Add(a.period)}
		status := http.StatusOK
		if err != nil {
			result.until = a.now().Add(min(max(unreadPeriod, retryAfter(err)), maxUnread))
			status = 0
			if response := (*azcore.ResponseError)(nil); errors.As(err, &response) {
				status = response.StatusCode
			}
		}
		a.requests.WithLabelValues(a.kind, strconv.Itoa(status)).Inc()
		a.store(at, result)
		return result, nil
	})
	return found.(answer[T])
}

func (a *answers[T]) request(ctx context.Context, at place) (T, error) {
	client, err := a.clients.Compute(at.subscription)
	if err != nil {
		var none T
		return none, err
	}
	return a.read(client, ctx, at.location)
}

func (a *answers[T]) last(at place) (answer[T], bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.byPlace[at]
	return last, ok && a.now().Before(last.until)
}

// store stores an answer. It removes those that are not used any more, or else the one that ends first, if there are too many.
func (a *answers[T]) store(at place, result answer[T]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byPlace) >= maxAnswers {
		first, now := place{}, a.now()
		for other, found := range a.byPlace {
			if !now.Before(found.until) {
				delete(a.byPlace, other)
			} else if first == (place{}) || found.until.Before(a.byPlace[first].until) {
				first = other
			}
		}
		if len(a.byPlace) >= maxAnswers {
			delete(a.byPlace, first)
		}
	}
	a.byPlace[at] = result
}
