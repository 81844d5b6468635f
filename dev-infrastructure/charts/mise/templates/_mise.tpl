{{- define "mise.labels" -}}
app.kubernetes.io/name: mise
app.kubernetes.io/part-of: hcpmesh
app.kubernetes.io/managed-by: Helm
{{- end }}

{{- define "mise.selector" -}}
app.kubernetes.io/name: mise
app.kubernetes.io/part-of: hcpmesh
{{- end }}

{{/* The port of checks and of probes. */}}
{{- define "mise.port" -}}8080{{- end }}

{{/*
Seconds before SIGTERM, in which the endpoints of the Service lose the pod and clients close their connections. MISE accepts no connection after
SIGTERM, so that the pause is as long as the pause and the drain of a service.
*/}}
{{- define "mise.preStop" -}}15{{- end }}

{{/* Seconds after SIGTERM, in which MISE finishes its requests. It is the default of .NET; a client waits at most 5 seconds. */}}
{{- define "mise.shutdown" -}}30{{- end }}

{{/*
The configuration of MISE. A token of ARM is bound to a request: MISE compares the time (ts), the method (m), the host (u) and the path (p) that
ARM has signed.
*/}}
{{- define "mise.settings" -}}
MiseVersion: "2.0"
AllowedHosts: "*"
EnableInboundPolicyFilter: true
AzureAd:
  Instance: {{ .application.instance | quote }}
  ClientId: {{ .application.clientId | quote }}
  TenantId: {{ .application.tenantId | quote }}
  Audiences: [{{ printf "api://%s" .application.clientId | quote }}]
  Logging:
    LogLevel: Information
  InboundPolicies:
  - Label: ARM
    Authority: {{ .arm.authority | quote }}
    Audiences: [{{ .arm.audience | quote }}]
    ValidApplicationIds: [{{ .arm.applicationId | quote }}]
    Protocols:
      Pop:
        TokenTypes:
          AccessToken:
            AppToken: true
        SignedHttpRequestValidationParametersOptions:
          ValidateTs: true
          ValidateM: true
          ValidateU: true
          ValidateP: true
Kestrel:
  Endpoints:
    Http:
      Url: http://0.0.0.0:{{ include "mise.port" . }}
Logging:
  LogLevel:
    Default: Information
    Microsoft: Information
{{- end }}
