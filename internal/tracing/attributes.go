package tracing

import "go.opentelemetry.io/otel/attribute"

// Attributes of spans that have the meaning of the log keys with the same names.
const (
	OperationID   = attribute.Key("hcpmesh.operation_id")
	ResourceID    = attribute.Key("hcpmesh.resource_id")
	CorrelationID = attribute.Key("hcpmesh.correlation_id")
	ClusterUID    = attribute.Key("hcpmesh.cluster_uid")
	Consumer      = attribute.Key("hcpmesh.consumer")
	Work          = attribute.Key("hcpmesh.work")
	BundleID      = attribute.Key("hcpmesh.bundle_id")
	Version       = attribute.Key("hcpmesh.version")
	Action        = attribute.Key("hcpmesh.action")
	Status        = attribute.Key("hcpmesh.status")
	Condition     = attribute.Key("hcpmesh.condition")
)

// method is the HTTP method of a request with which a trace begins.
const method = attribute.Key("http.request.method")

// Method returns the attribute of a request's HTTP method. A trace begins only with a span that has it from its start.
func Method(value string) attribute.KeyValue { return method.String(value) }
