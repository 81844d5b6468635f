{{/*
Two commands of the program run before each rollout, each with an identity of its own. `provision` creates the database and its roles as the
administrator of the server; a database whose server authenticates certificates has none. `migrate` changes the tables as the owner of the
database. Both lock, so that two of them cannot run at the same time, and change only what the previous release can work with.
*/}}
{{- define "service.migration" }}
{{- with get .values "provision" }}
{{- include "service.databaseJob" (dict "service" $ "command" "provision" "suffix" "provision" "job" . "before" "-3" "weight" "-2") }}
{{- end }}
{{- include "service.databaseJob" (dict "service" . "command" "migrate" "suffix" "migration" "job" .values.migration "before" "-1" "weight" "0") }}
{{- end }}

{{/* A job and what it needs. Its objects are hooks, because they must exist before those of the release: those of weight before, then the job. */}}
{{- define "service.databaseJob" }}
{{- $values := .service.values }}
{{- $namespace := .service.namespace }}
{{- $this := dict "name" (printf "%s-%s" .service.name .suffix) "namespace" $namespace "values" $values }}
{{- $hooks := dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-delete-policy" "before-hook-creation" }}
{{- $before := merge (dict "helm.sh/hook-weight" .before) $hooks }}
{{- $platform := dict "identity" .job.identity "secrets" $values.secrets }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $this.name }}
  namespace: {{ $namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations:
    {{- toYaml $before | nindent 4 }}
    {{- include "service.workloadIdentity" .job.identity | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $this.name }}
  namespace: {{ $namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations: {{- toYaml $before | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "service.selector" $this | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress: {{- include "service.egress" (dict "servers" (list) "privateEndpoints" (get $values.network "privateEndpoints") "external" $values.network.external) | nindent 2 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $this.name }}
  namespace: {{ $namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations: {{- merge (dict "helm.sh/hook-weight" .weight) $hooks | toYaml | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 1800
  template:
    metadata:
      labels:
        {{- include "service.selector" $this | nindent 8 }}
        azure.workload.identity/use: "true"
        sidecar.istio.io/inject: "false"
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $this.name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      priorityClassName: hcpmesh-service
      securityContext: {{- include "service.podSecurity" .service | nindent 8 }}
      containers:
      - name: {{ .command }}
        image: {{ include "service.image" .service }}
        imagePullPolicy: IfNotPresent
        args:
        - {{ .command }}
{{- range $name, $value := .job.flags }}
        - {{ printf "--%s=%s" $name $value | quote }}
{{- end }}
{{- if get .job.identity "secret" }}
        - --identity-dir=/identity
{{- end }}
{{- with include "service.platformEnvironment" $platform | trim }}
        env: {{- . | nindent 8 }}
{{- end }}
        resources: {{- include "service.resources" $values.resources | nindent 10 }}
        securityContext: {{- include "service.containerSecurity" .service | nindent 10 }}
{{- with printf "%s%s" (include "service.identityMount" .job.identity) (include "service.platformMounts" $platform) | trim }}
        volumeMounts: {{- . | nindent 8 }}
{{- end }}
{{- with printf "%s%s" (include "service.identityVolume" .job.identity) (include "service.platformVolumes" $platform) | trim }}
      volumes: {{- . | nindent 6 }}
{{- end }}
{{- end }}
