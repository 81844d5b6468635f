{{/*
The chart of a service defines service.program, YAML with what its program needs in Kubernetes:

  ports               map of port names to numbers, without the port for operations
  flags               map of the flags whose values follow from the chart
  sharedDependencies  readiness checks that fail for all replicas at once; see service.probes
  shutdown            seconds in which the program finishes its requests after it has drained
  audit               true if each replica has a queue of audit records on a disk
  auditWithPod        like audit, but the disk ends with the pod, which may be in a Deployment
  alone               true if no second pod may run beside the first, not even during a rollout
  kubernetesAPI       true if the program calls the Kubernetes API of its cluster
  migration           true if the program has the command `migrate`
  privateLink         map of port names to the ports of a private link service; see service.privateLink
  withoutAzure        true if the program calls no service of Azure and has no managed identity

and includes service.objects.
*/}}

{{- define "service.objects" -}}
{{- if ne .Release.Namespace .Chart.Name }}
{{- fail (printf "namespace: %s is installed in namespace %s, and its identity needs the namespace %s" .Chart.Name .Release.Namespace .Chart.Name) }}
{{- end }}
{{- $defaults := dict "ports" (dict) "flags" (dict) "sharedDependencies" (list) "audit" false "auditWithPod" false "alone" false "kubernetesAPI" false "migration" false "privateLink" (dict) "withoutAzure" false }}
{{- $program := include "service.program" . | fromYaml | mergeOverwrite $defaults }}
{{- $this := dict "name" .Chart.Name "namespace" .Release.Namespace "values" .Values "program" $program }}
{{- include "service.account" $this }}
{{- include "service.files" $this }}
{{- include "service.secrets" $this }}
{{- if $program.privateLink }}
{{- include "service.privateLink" $this }}
{{- else }}
{{- include "service.service" $this }}
{{- end }}
{{- include "service.workload" $this }}
{{- include "service.disruption" $this }}
{{- include "service.network" $this }}
{{- include "service.monitor" $this }}
{{- if $program.migration }}
{{- include "service.migration" $this }}
{{- end }}
{{- end }}

{{/* The port with /metrics, /healthz and /readyz. */}}
{{- define "service.operationsPort" -}}9090{{- end }}

{{- define "service.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: hcpmesh
app.kubernetes.io/managed-by: Helm
{{- end }}

{{- define "service.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: hcpmesh
{{- end }}

{{/* The image, by digest. The schema of the values refuses an empty part, too. */}}
{{- define "service.image" -}}
{{- $image := required "image: is required" .values.image }}
{{- $registry := required "image.registry: is required" $image.registry }}
{{- $repository := required "image.repository: is required" $image.repository }}
{{- $digest := required "image.digest: is required: an image is selected by its digest" $image.digest }}
{{- printf "%s/%s@%s" $registry $repository $digest }}
{{- end }}

{{- define "service.account" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
{{- if not .program.withoutAzure }}
  annotations: {{- include "service.workloadIdentity" .values.identity | nindent 4 }}
{{- end }}
automountServiceAccountToken: false
{{- end }}

{{- define "service.workloadIdentity" -}}
azure.workload.identity/client-id: {{ required "identity.clientId: is required" .clientId | quote }}
azure.workload.identity/tenant-id: {{ required "identity.tenantId: is required" .tenantId | quote }}
{{- end }}

{{/* Configuration files. A change of them changes an annotation of the pods, so that they are replaced. */}}
{{- define "service.files" }}
{{- if .values.files }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}-files
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
data:
{{- range $name, $content := .values.files }}
  {{ $name }}: |
{{- $content | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "service.service" }}
{{- if .program.ports }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  selector: {{- include "service.selector" . | nindent 4 }}
  ports:
{{- range $name, $number := .program.ports }}
  - name: {{ $name }}
    port: {{ $number }}
    targetPort: {{ $name }}
    protocol: TCP
{{- if get $.values.identity "sidecar" }}
    appProtocol: {{ include "service.sidecarProtocol" $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* At most one pod may be away for maintenance. Pods that are not ready do not hinder it, as they serve nobody. */}}
{{- define "service.disruption" }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
{{- end }}

{{/* Prometheus reads the pods directly: the port for operations is in no Service. */}}
{{- define "service.monitor" }}
---
apiVersion: {{ .values.metrics.group }}/v1
kind: PodMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
  podMetricsEndpoints:
  - port: operations
    path: /metrics
    scheme: http
    interval: 30s
    scrapeTimeout: 10s
{{- end }}
