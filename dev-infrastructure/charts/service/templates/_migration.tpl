{{/*
The command `migrate` runs before each rollout, with the role that owns the database and an identity of its own. It locks the database, so
that two of them cannot run at the same time, and changes only what the previous release can work with. Its objects are hooks, because they
must exist before those of the release.
*/}}
{{- define "service.migration" }}
{{- $migration := .values.migration }}
{{- $this := dict "name" (printf "%s-migration" .name) "namespace" .namespace "values" .values }}
{{- $volumes := list (dict "name" "keys" "vault" $migration.vault "files" (list (dict "path" "database-url" "secret" $migration.databaseUrl))) }}
{{- $platform := dict "identity" $migration.identity "secrets" .values.secrets }}
{{- $before := dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-weight" "-1" "helm.sh/hook-delete-policy" "before-hook-creation" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $this.name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations:
    {{- toYaml $before | nindent 4 }}
    {{- include "service.workloadIdentity" $migration.identity | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $this.name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations: {{- toYaml $before | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "service.selector" $this | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress: {{- include "service.egress" (dict "servers" (list) "privateEndpoints" .values.network.privateEndpoints "external" .values.network.external) | nindent 2 }}
{{- if eq .values.secrets.provider "csi" }}
{{- include "service.secretProviderClass" (dict "name" $this.name "namespace" .namespace "volume" (first $volumes) "identity" $migration.identity "annotations" $before) }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $this.name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" $this | nindent 4 }}
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-weight: "0"
    helm.sh/hook-delete-policy: before-hook-creation
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
      securityContext: {{- include "service.podSecurity" . | nindent 8 }}
      containers:
      - name: migrate
        image: {{ include "service.image" . }}
        imagePullPolicy: IfNotPresent
        args:
        - migrate
        - --database-url-file=/secrets/keys/database-url
        - {{ printf "--grant-to=%s" (required "migration.databaseRole: is required" $migration.databaseRole) | quote }}
{{- with include "service.platformEnvironment" $platform | trim }}
        env: {{- . | nindent 8 }}
{{- end }}
        resources: {{- include "service.resources" .values.resources | nindent 10 }}
        securityContext: {{- include "service.containerSecurity" . | nindent 10 }}
        volumeMounts: {{- include "service.secretMounts" (dict "volumes" $volumes) | nindent 8 }}
{{- include "service.platformMounts" $platform | nindent 8 }}
      volumes: {{- include "service.secretVolumes" (dict "name" $this.name "volumes" $volumes "provider" .values.secrets.provider) | nindent 6 }}
{{- include "service.platformVolumes" $platform | nindent 6 }}
{{- end }}
