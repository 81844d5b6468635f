{{/*
On AKS, a webhook gives pods with the label azure.workload.identity/use what a program needs to authenticate with its workload identity.
Elsewhere identity.authority is set, and the chart requests the same: a token of the service account, which kubelet renews, and the
environment of Azure's libraries. secrets.authorities is a ConfigMap with certificate authorities that the program trusts besides those
of its image. All take identity and secrets.
*/}}
{{- define "service.platformEnvironment" -}}
{{- if get .identity "authority" }}
- name: AZURE_AUTHORITY_HOST
  value: {{ .identity.authority | quote }}
- name: AZURE_CLIENT_ID
  value: {{ .identity.clientId | quote }}
- name: AZURE_TENANT_ID
  value: {{ .identity.tenantId | quote }}
- name: AZURE_FEDERATED_TOKEN_FILE
  value: /azure/token
{{- end }}
{{- if get .secrets "authorities" }}
- name: SSL_CERT_DIR
  value: /authorities
{{- end }}
{{- end }}

{{- define "service.platformMounts" -}}
{{- if get .identity "authority" }}
- name: azure
  mountPath: /azure
  readOnly: true
{{- end }}
{{- if get .secrets "authorities" }}
- name: authorities
  mountPath: /authorities
  readOnly: true
{{- end }}
{{- end }}

{{- define "service.platformVolumes" -}}
{{- if get .identity "authority" }}
- name: azure
  projected:
    sources:
    - serviceAccountToken:
        path: token
        audience: api://AzureADTokenExchange
        expirationSeconds: 3600
{{- end }}
{{- with get .secrets "authorities" }}
- name: authorities
  configMap:
    name: {{ . }}
{{- end }}
{{- end }}
