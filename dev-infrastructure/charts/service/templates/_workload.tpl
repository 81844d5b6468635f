{{/*
A program with an audit queue is a StatefulSet, because each replica needs a disk of its own that survives a restart. All others are
Deployments.
*/}}
{{- define "service.workload" }}
---
apiVersion: apps/v1
{{- if .program.audit }}
kind: StatefulSet
{{- else }}
kind: Deployment
{{- end }}
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: 5
  minReadySeconds: 5
  selector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
{{- if .program.audit }}
{{- if .program.ports }}
  serviceName: {{ .name }}
{{- end }}
  podManagementPolicy: Parallel
  updateStrategy:
    type: RollingUpdate
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: Retain
    whenScaled: Retain
  volumeClaimTemplates:
  - metadata:
      name: audit
      labels: {{- include "service.selector" . | nindent 8 }}
    spec: {{- include "service.auditClaim" . | nindent 6 }}
{{- else }}
  progressDeadlineSeconds: 600
  strategy:
{{- if .program.alone }}
    type: Recreate
{{- else }}
    type: RollingUpdate
    rollingUpdate:
      # A new pod is ready before an old one ends.
      maxSurge: 1
      maxUnavailable: 0
{{- end }}
{{- end }}
  template:
    metadata:
      labels:
        {{- include "service.selector" . | nindent 8 }}
{{- if not .program.withoutAzure }}
        azure.workload.identity/use: "true"
{{- end }}
        {{- include "service.sidecarLabels" .values.identity | trim | nindent 8 }}
{{- with include "service.podAnnotations" .values | trim }}
      annotations: {{- . | nindent 8 }}
{{- end }}
    spec: {{- include "service.pod" . | nindent 6 }}
{{- end }}

{{- define "service.podAnnotations" -}}
{{- with .files }}
hcpmesh.io/files: {{ toYaml . | sha256sum }}
{{- end }}
{{- include "service.sidecarAnnotations" .identity }}
{{- end }}

{{- define "service.pod" -}}
serviceAccountName: {{ .name }}
automountServiceAccountToken: false
enableServiceLinks: false
priorityClassName: hcpmesh-service
terminationGracePeriodSeconds: {{ add (include "service.preStop" .) (include "service.drain" .) .program.shutdown 5 }}
securityContext: {{- include "service.podSecurity" . | nindent 2 }}
topologySpreadConstraints:
- topologyKey: topology.kubernetes.io/zone
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
{{- include "service.spreadRevision" . | nindent 2 }}
- topologyKey: kubernetes.io/hostname
  maxSkew: 1
  whenUnsatisfiable: DoNotSchedule
  labelSelector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
{{- include "service.spreadRevision" . | nindent 2 }}
containers:
- name: {{ .name }}
  image: {{ include "service.image" . }}
  imagePullPolicy: IfNotPresent
  args: {{- include "service.arguments" . | nindent 2 }}
  env:
  # The garbage collector works harder before Kubernetes would end the process for its memory.
  - name: GOMEMLIMIT
    value: {{ div (mul .values.resources.memoryLimitMiB 9) 10 }}MiB
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
{{- include "service.platformEnvironment" .values | nindent 2 }}
  ports:
{{- range $name, $number := .program.ports }}
  - name: {{ $name }}
    containerPort: {{ $number }}
    protocol: TCP
{{- end }}
  - name: operations
    containerPort: {{ include "service.operationsPort" . }}
    protocol: TCP
{{- include "service.probes" . | nindent 2 }}
  lifecycle:
    preStop:
      sleep:
        seconds: {{ include "service.preStop" . }}
  resources: {{- include "service.resources" .values.resources | nindent 4 }}
  securityContext: {{- include "service.containerSecurity" . | nindent 4 }}
  volumeMounts:
{{- include "service.platformMounts" .values | nindent 2 }}
{{- include "service.identityMount" .values.identity | nindent 2 }}
{{- with .values.secrets.volumes }}
{{- include "service.secretMounts" (dict "volumes" .) | nindent 2 }}
{{- end }}
{{- if .values.files }}
  - name: files
    mountPath: /config
    readOnly: true
{{- end }}
{{- if or .program.audit .program.auditWithPod }}
  - name: audit
    mountPath: /audit
{{- end }}
{{- if .program.kubernetesAPI }}
  - name: kubernetes-api
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
{{- end }}
volumes:
{{- include "service.platformVolumes" .values | nindent 0 }}
{{- include "service.identityVolume" .values.identity | nindent 0 }}
{{- with .values.secrets.volumes }}
{{- include "service.secretVolumes" (dict "name" $.name "volumes" . "provider" $.values.secrets.provider) | nindent 0 }}
{{- end }}
{{- if .values.files }}
- name: files
  configMap:
    name: {{ .name }}-files
{{- end }}
{{- if .program.auditWithPod }}
- name: audit
  ephemeral:
    volumeClaimTemplate:
      metadata:
        labels: {{- include "service.selector" . | nindent 10 }}
      spec: {{- include "service.auditClaim" . | nindent 8 }}
{{- end }}
{{- if .program.kubernetesAPI }}
- name: kubernetes-api
  projected:
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3600
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
    - downwardAPI:
        items:
        - path: namespace
          fieldRef:
            fieldPath: metadata.namespace
{{- end }}
{{- end }}

{{/* The certificate of a program or a job, if it has one. Both take an identity. */}}
{{- define "service.identityMount" -}}
{{- if get . "secret" }}
- name: identity
  mountPath: /identity
  readOnly: true
{{- end }}
{{- end }}

{{- define "service.identityVolume" -}}
{{- with get . "secret" }}
- name: identity
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{- define "service.auditClaim" -}}
accessModes: [ReadWriteOnce]
storageClassName: {{ required "audit.storageClass: is required" .values.audit.storageClass }}
resources:
  requests:
    storage: 1Gi
{{- end }}

{{/* The pods of each revision are spread by themselves. A StatefulSet replaces its pods one by one, so it needs no distinction. */}}
{{- define "service.spreadRevision" -}}
{{- if not .program.audit }}
matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}

{{/* Seconds before SIGTERM, in which the endpoints of the Service lose the pod. */}}
{{- define "service.preStop" -}}5{{- end }}

{{/* Seconds after SIGTERM, in which the program is not ready and serves on. */}}
{{- define "service.drain" -}}10{{- end }}

{{- define "service.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "service.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A CPU limit would delay requests on nodes with free CPUs, so there is none. */}}
{{- define "service.resources" -}}
requests:
  cpu: {{ .cpuMillicores }}m
  memory: {{ .memoryMiB }}Mi
limits:
  memory: {{ .memoryLimitMiB }}Mi
{{- end }}

{{/* Flags of the configuration and of the chart. No flag may have two values. */}}
{{- define "service.arguments" -}}
{{- $flags := dict "ops-listen" (printf "0.0.0.0:%s" (include "service.operationsPort" .)) "drain" (printf "%ss" (include "service.drain" .)) }}
{{- if get .values.identity "secret" }}
{{- $_ := set $flags "identity-dir" "/identity" }}
{{- end }}
{{- with get .values.identity "sidecar" }}
{{- $_ := set $flags "sidecar-identity" .id }}
{{- with get . "gateways" }}
{{- $_ := set $flags "sidecar-gateways" (join "," .) }}
{{- end }}
{{- end }}
{{- if or .program.audit .program.auditWithPod }}
{{- $_ := set $flags "audit-queue-dir" "/audit/queue" }}
{{- end }}
{{- range $source := list .program.flags .values.flags }}
{{- range $name, $value := $source }}
{{- if hasKey $flags $name }}
{{- fail (printf "flags.%s: the chart sets this flag" $name) }}
{{- end }}
{{- $_ := set $flags $name (required (printf "flags.%s: is required" $name) $value) }}
{{- end }}
{{- end }}
{{- range $name := keys $flags | sortAlpha }}
- {{ printf "--%s=%s" $name (get $flags $name) | quote }}
{{- end }}
{{- end }}

{{/*
A new pod starts serving when all of its dependencies have responded once, so that a rollout of a wrong configuration stops. Later an
outage of a dependency that all replicas share does not take pods out of the Service: they respond with an error that the client
understands, in place of a refused connection.
*/}}
{{- define "service.probes" -}}
startupProbe:
  httpGet:
    path: /readyz
    port: operations
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 150
readinessProbe:
  httpGet:
    path: /readyz
{{- range $i, $dependency := .program.sharedDependencies }}
{{- if $i }}&{{ else }}?{{ end }}exclude={{ $dependency }}
{{- end }}
    port: operations
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: operations
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
