{{/*
A secret volume is a folder of files below /secrets. With the provider csi, the secrets store driver reads them from a Key Vault with the
workload identity of the pod. With the provider secret, a Secret with the name of the volume has them; somebody else creates it.
*/}}
{{- define "service.secrets" }}
{{- $this := . }}
{{- if eq .values.secrets.provider "csi" }}
{{- range .values.secrets.volumes }}
{{- include "service.secretProviderClass" (dict "name" $this.name "namespace" $this.namespace "volume" . "identity" $this.values.identity) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes name, namespace, volume and identity. */}}
{{- define "service.secretProviderClass" }}
---
apiVersion: secrets-store.csi.x-k8s.io/v1
kind: SecretProviderClass
metadata:
  name: {{ .name }}-{{ .volume.name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  provider: azure
  parameters:
    usePodIdentity: "false"
    clientID: {{ .identity.clientId | quote }}
    tenantId: {{ .identity.tenantId | quote }}
    keyvaultName: {{ required (printf "secrets.volumes: the volume %s needs a vault" .volume.name) .volume.vault }}
    objects: |
      array:
{{- range .volume.files }}
      - |
        objectType: secret
        objectName: {{ .secret }}
        objectAlias: {{ .path }}
{{- end }}
{{- end }}

{{/* Takes name, volumes and provider. */}}
{{- define "service.secretVolumes" -}}
{{- $this := . }}
{{- range .volumes }}
- name: {{ .name }}
{{- if eq $this.provider "csi" }}
  csi:
    driver: secrets-store.csi.k8s.io
    readOnly: true
    volumeAttributes:
      secretProviderClass: {{ $this.name }}-{{ .name }}
{{- else }}
  secret:
    secretName: {{ $this.name }}-{{ .name }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end }}

{{- define "service.secretMounts" -}}
{{- range .volumes }}
- name: {{ .name }}
  mountPath: /secrets/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}
