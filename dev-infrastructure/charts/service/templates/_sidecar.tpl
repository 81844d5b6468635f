{{/*
With identity.sidecar, a sidecar of Istio authenticates all connections between programs, and the program has no certificate for them. Istio
starts the sidecar before the program and ends it after the program. All take the identity of the values.
*/}}
{{- define "service.sidecarLabels" -}}
{{- with get . "sidecar" }}
sidecar.istio.io/inject: "true"
istio.io/rev: {{ .revision }}
{{- else }}
sidecar.istio.io/inject: "false"
{{- end }}
{{- end }}

{{/*
Kubernetes and Prometheus, which have no sidecar, use the port for operations directly; the network policy limits who may. The program has TLS
of its own for services outside of the cluster.
*/}}
{{- define "service.sidecarAnnotations" -}}
{{- with get . "sidecar" }}
sidecar.istio.io/nativeSidecar: "true"
sidecar.istio.io/rewriteAppHTTPProbers: "false"
traffic.sidecar.istio.io/excludeInboundPorts: {{ include "service.operationsPort" . | quote }}
traffic.sidecar.istio.io/excludeOutboundPorts: {{ .directPorts | quote }}
{{- end }}
{{- end }}

{{/* The protocol of a port without TLS, by the name of the port. Istio would take the name https for TLS of the program. */}}
{{- define "service.sidecarProtocol" -}}
{{- if eq . "grpc" }}grpc{{ else }}http{{ end }}
{{- end }}

{{/* The scheme of the URLs of other programs. */}}
{{- define "service.scheme" -}}
{{- if get . "sidecar" }}http{{ else }}https{{ end }}
{{- end }}
