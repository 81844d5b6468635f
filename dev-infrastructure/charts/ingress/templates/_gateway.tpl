{{- define "ingress.labels" -}}
app.kubernetes.io/name: ingress
app.kubernetes.io/part-of: hcpmesh
app.kubernetes.io/managed-by: Helm
{{- end }}

{{/* The labels of the pods of a gateway. Takes its name. Istio finds the pods by them in all namespaces. */}}
{{- define "ingress.selector" -}}
istio: ingress-{{ . }}
{{- end }}

{{/* The port of Envoy's probes, and that of its metrics. */}}
{{- define "ingress.probePort" -}}15021{{- end }}
{{- define "ingress.metricsPort" -}}15090{{- end }}

{{/* The port at which Envoy accepts TLS. The Service translates port 443 to it. */}}
{{- define "ingress.tlsPort" -}}8443{{- end }}

{{/* Seconds before SIGTERM. Azure's load balancer needs two failed probes, with 5 seconds between them, to stop sending connections. */}}
{{- define "ingress.preStop" -}}15{{- end }}

{{/*
Seconds after SIGTERM, in which Envoy finishes its requests. A request has at most 60 seconds. A stream of the session gateway that lasts
longer breaks off, and its client starts it again.
*/}}
{{- define "ingress.drain" -}}60{{- end }}
