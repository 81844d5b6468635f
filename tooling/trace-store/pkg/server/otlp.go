package server

import (
	"encoding/hex"
	"strconv"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

// kinds are the names of the kinds of spans.
var kinds = map[otlp.Span_SpanKind]string{
	otlp.Span_SPAN_KIND_SERVER: "server", otlp.Span_SPAN_KIND_CLIENT: "client", otlp.Span_SPAN_KIND_PRODUCER: "producer", otlp.Span_SPAN_KIND_CONSUMER: "consumer",
}

// The lengths of IDs in bytes.
const (
	traceIDLength = 16
	spanIDLength  = 8
)

// decode returns the spans of an export request, and the number of those whose IDs are malformed.
func decode(request *collector.ExportTraceServiceRequest) (decoded []*spans.Span, malformed int) {
	for _, resource := range request.GetResourceSpans() {
		service := attributes(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if len(span.GetTraceId()) != traceIDLength || len(span.GetSpanId()) != spanIDLength {
					malformed++
					continue
				}
				decoded = append(decoded, fromOTLP(service, span))
			}
		}
	}
	return decoded, malformed
}

func fromOTLP(service string, span *otlp.Span) *spans.Span {
	s := &spans.Span{
		TraceID: hex.EncodeToString(span.GetTraceId()), SpanID: hex.EncodeToString(span.GetSpanId()), ParentID: hex.EncodeToString(span.GetParentSpanId()),
		Name: span.GetName(), Service: service, Kind: kinds[span.GetKind()],
		Start: time.Unix(0, int64(span.GetStartTimeUnixNano())).UTC(), End: time.Unix(0, int64(span.GetEndTimeUnixNano())).UTC(),
		Failed: span.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR, Message: span.GetStatus().GetMessage(),
		Attributes: attributes(span.GetAttributes()),
	}
	if s.Kind == "" {
		s.Kind = "internal"
	}
	for _, link := range span.GetLinks() {
		s.Links = append(s.Links, hex.EncodeToString(link.GetTraceId()))
	}
	return s
}

// attributes returns attributes as text. Lists and maps are left out.
func attributes(values []*common.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, v := range values {
		switch value := v.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			texts[v.GetKey()] = value.StringValue
		case *common.AnyValue_IntValue:
			texts[v.GetKey()] = strconv.FormatInt(value.IntValue, 10)
		case *common.AnyValue_BoolValue:
			texts[v.GetKey()] = strconv.FormatBool(value.BoolValue)
		case *common.AnyValue_DoubleValue:
			texts[v.GetKey()] = strconv.FormatFloat(value.DoubleValue, 'g', -1, 64)
		}
	}
	return texts
}
