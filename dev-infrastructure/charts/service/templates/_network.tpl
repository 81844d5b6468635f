{{/*
Nothing may connect to a pod, and a pod may connect to nothing, but for what network lists: the clients and servers of the authorization
table, and the services of Azure that the program uses. Nodes may always connect to their pods, for the probes.
*/}}
{{- define "service.network" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: default-deny
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
{{- $ports := .program.ports }}
{{- range .values.network.clients }}
  - from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .namespace }}
    ports:
{{- range .ports }}
    - port: {{ required (printf "network.clients: the program has no port %s" .) (get $ports .) }}
      protocol: TCP
{{- end }}
{{- end }}
  - from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .values.metrics.namespace }}
    ports:
    - port: {{ include "service.operationsPort" . }}
      protocol: TCP
  egress: {{- include "service.egress" .values.network | nindent 2 }}
{{- end }}

{{/*
A program of a management cluster that connects to hosted API servers, and to no other port of control planes. Takes the values of the chart.
*/}}
{{- define "service.hostedAPIServers" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: hosted-api-servers
  namespace: {{ .Release.Namespace }}
  labels: {{- include "service.labels" (dict "name" .Chart.Name) | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "service.selector" (dict "name" .Chart.Name) | nindent 6 }}
  policyTypes: [Egress]
  egress:
  - to:
    - namespaceSelector:
        matchLabels:
          hypershift.openshift.io/hosted-control-plane: "true"
      podSelector:
        matchLabels:
          app: kube-apiserver
    ports:
    - port: 6443
      protocol: TCP
{{- end }}

{{/* Takes a network: servers, external and privateEndpoints. */}}
{{- define "service.egress" -}}
- to:
  - namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: kube-system
    podSelector:
      matchLabels:
        k8s-app: kube-dns
  ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
{{- range .servers }}
- to:
  - namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ .namespace }}
  ports:
{{- range .ports }}
  - port: {{ . }}
    protocol: TCP
{{- end }}
{{- end }}
{{- with get . "privateEndpoints" }}
# Databases, brokers, vaults and storage of the region, through private endpoints.
- to:
  - ipBlock:
      cidr: {{ .cidr }}
  ports:
{{- range .ports }}
  - port: {{ . }}
    protocol: TCP
{{- end }}
{{- end }}
{{- with .external }}
# Public addresses. Private networks and the metadata service of the nodes are not among them.
- to:
  - ipBlock:
      cidr: 0.0.0.0/0
      except: [10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
  ports:
{{- range . }}
  - port: {{ . }}
    protocol: TCP
{{- end }}
{{- end }}
{{- end }}
