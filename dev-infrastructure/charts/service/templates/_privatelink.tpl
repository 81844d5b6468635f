{{/*
A program with privateLink has no Service within the cluster. AKS creates an internal load balancer and a private link service in front of it,
which writes a PROXY header to each connection: only the load balancer may connect to the ports.

The pods see the addresses of the private link service, because traffic stays on the node to which the load balancer sends it. AKS would probe
kube-proxy's health check then, which does not understand the PROXY headers of the probes. The annotations make it probe the ports of the
program: a node without a ready pod accepts no connection there. 168.63.129.16 is the address of the probes.
*/}}
{{- define "service.privateLink" }}
{{- $link := required "privateLink: is required" .values.privateLink }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
  annotations:
    service.beta.kubernetes.io/azure-load-balancer-internal: "true"
    service.beta.kubernetes.io/azure-pls-create: "true"
    service.beta.kubernetes.io/azure-pls-name: {{ $link.name | quote }}
    service.beta.kubernetes.io/azure-pls-ip-configuration-subnet: {{ $link.subnet | quote }}
    service.beta.kubernetes.io/azure-pls-proxy-protocol: "true"
    service.beta.kubernetes.io/azure-pls-visibility: {{ join " " $link.visibility | quote }}
{{- with $link.autoApproval }}
    service.beta.kubernetes.io/azure-pls-auto-approval: {{ join " " . | quote }}
{{- end }}
{{- range $name, $port := .program.privateLink }}
    service.beta.kubernetes.io/port_{{ $port }}_health-probe_protocol: tcp
    service.beta.kubernetes.io/port_{{ $port }}_health-probe_port: {{ $port | quote }}
{{- end }}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {{- include "service.selector" . | nindent 4 }}
  ports:
{{- range $name, $port := .program.privateLink }}
  - name: {{ $name }}
    port: {{ $port }}
    targetPort: {{ $name }}
    protocol: TCP
{{- end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}-private-link
  namespace: {{ .namespace }}
  labels: {{- include "service.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "service.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
  - from:
    - ipBlock:
        cidr: {{ $link.range }}
    - ipBlock:
        cidr: 168.63.129.16/32
    ports:
{{- range $name, $port := .program.privateLink }}
    - port: {{ get $.program.ports $name }}
      protocol: TCP
{{- end }}
{{- end }}
