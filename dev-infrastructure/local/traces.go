package local

import "github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"

// WithTraces is the element of Config.With that adds a store of traces to a region. All services send their spans to it.
const WithTraces = "traces"

const traceStoreName = "trace-store"

// traceStore returns the spec of the trace store, if the region has it.
func (r *Region) traceStore() []supervisor.Spec {
	if !r.config.with(WithTraces) {
		return nil
	}
	return []supervisor.Spec{r.ours(traceStoreName, "trace-store", "--listen="+r.address(tracesPort))}
}

// tracing returns the flags of the processes that send spans.
func (r *Region) tracing() []string {
	switch {
	case r.config.with(WithTraces):
		return []string{"--otlp-endpoint=http://" + r.address(tracesPort)}
	case r.config.OTLPEndpoint != "":
		return []string{"--otlp-endpoint=" + r.config.OTLPEndpoint}
	}
	return nil
}
