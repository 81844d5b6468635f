package eventqueue

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// OperationClass is the class by which metrics count operations.
type OperationClass struct {
	Kind    database.Kind
	Request database.OperationRequest
}

// OtherOperations is the class of operations that OperationClasses does not list. It bounds the number of label values.
var OtherOperations = OperationClass{"other", "Other"}

// OperationClasses returns the classes of all operations of this release.
func OperationClasses() []OperationClass {
	var classes []OperationClass
	for _, kind := range []database.Kind{database.ClusterKind, database.NodePoolKind, database.ExternalAuthKind} {
		for _, request := range []database.OperationRequest{database.CreateRequest, database.UpdateRequest, database.DeleteRequest} {
			classes = append(classes, OperationClass{kind, request})
		}
	}
	return append(classes, OperationClass{database.CredentialKind, database.RequestCredentialRequest}, OperationClass{Revocation, database.RevokeCredentialsRequest})
}

// ClassOf returns the class of an operation.
func ClassOf(operation *database.OperationDocument) OperationClass {
	class := OperationClass{ResourceOf(operation.ResourceID).Kind(), operation.Request}
	if slices.Contains(OperationClasses(), class) {
		return class
	}
	return OtherOperations
}

// Collector exports the number of running operations and the age of the oldest one.
type Collector struct {
	queue            *Queue
	now              func() time.Time
	inFlight, oldest *prometheus.Desc
}

// NewCollector returns a Collector of a queue.
func NewCollector(queue *Queue, now func() time.Time) *Collector {
	return &Collector{
		queue: queue, now: now,
		inFlight: prometheus.NewDesc("backend_operations_in_flight", "Running operations of this replica, by kind of resource and request.", []string{"kind", "request"}, nil),
		oldest:   prometheus.NewDesc("backend_operations_oldest_seconds", "Age of the oldest running operation of this replica in seconds, by kind of resource and request; 0 if none runs.", []string{"kind", "request"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) { descs <- c.inFlight; descs <- c.oldest }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	type total struct {
		count  int
		oldest time.Time
	}
	totals := map[OperationClass]total{OtherOperations: {}}
	for _, class := range OperationClasses() {
		totals[class] = total{}
	}
	c.queue.mu.Lock()
	for _, o := range c.queue.running {
		t := totals[o.class]
		if t.count == 0 || o.started.Before(t.oldest) {
			t.oldest = o.started
		}
		t.count++
		totals[o.class] = t
	}
	c.queue.mu.Unlock()
	now := c.now()
	for class, t := range totals {
		age := 0.0
		if t.count > 0 {
			age = max(0, now.Sub(t.oldest).Seconds())
		}
		metrics <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(t.count), string(class.Kind), string(class.Request))
		metrics <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, string(class.Kind), string(class.Request))
	}
}
