{{/* Peers that may reach the clients' ports: pods of this release, those of .Values.networkPolicy.clients, and the monitoring. */}}
{{- define "penstock.peers" -}}
- podSelector: {matchLabels: {app.kubernetes.io/name: penstock, app.kubernetes.io/instance: {{ .Release.Name }}}}
{{- range .Values.networkPolicy.clients }}
- {{ toJson . }}
{{- end }}
{{- range .Values.networkPolicy.monitoring }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{/* A policy that admits connections only. Takes (root, part, ports of clients, ports of our own pods). */}}
{{- define "penstock.policy" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}
{{- if $root.Values.networkPolicy.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "penstock.metadata" (list $root $part $part) | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "penstock.selector" (list $root $part) | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from: {{- include "penstock.peers" $root | nindent 8 }}
      ports:
        {{- range index . 2 }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
    {{- range index . 3 }}
    - from: [{podSelector: {matchLabels: {app.kubernetes.io/name: penstock, app.kubernetes.io/instance: {{ $root.Release.Name }}}}}]
      ports: [{port: {{ . }}, protocol: TCP}]
    {{- end }}
{{- end }}
{{- end }}

{{- define "penstock.nsqdNetworkPolicy" -}}
{{- $ports := ternary (list "tcp" "http" "https") (list "tcp" "http") (not (empty (include "penstock.hasTls" .))) }}
{{- $own := ternary (list "cluster") list (not (empty (include "penstock.isCluster" .))) }}
{{- include "penstock.policy" (list . "nsqd" $ports $own) }}
{{- end }}

{{- define "penstock.nsqlookupdNetworkPolicy" -}}
{{- include "penstock.policy" (list . "nsqlookupd" (list "http") (list "tcp")) }}
{{- end }}

{{- define "penstock.nsqadminNetworkPolicy" -}}
{{- if .Values.nsqadmin.enabled }}
{{- include "penstock.policy" (list . "nsqadmin" (list "http") list) }}
{{- end }}
{{- end }}

{{- define "penstock.serverCertificate" -}}
{{- if and .Values.tls.issuerRef (not .Values.tls.secretName) }}
{{- $name := include "penstock.name" . }}{{ $namespace := .Release.Namespace }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {{- include "penstock.metadata" (list . "nsqd" "server") | nindent 2 }}
spec:
  secretName: {{ $name }}-tls
  commonName: penstock server
  usages: [server auth, client auth]
  dnsNames:
    - localhost
    - "*.{{ include "penstock.domain" (list . "nsqd-pods") }}"
    - {{ $name }}-nsqd.{{ $namespace }}
    - {{ $name }}-nsqd.{{ $namespace }}.svc
    - {{ include "penstock.domain" (list . "nsqd") }}
  ipAddresses: [127.0.0.1]
  issuerRef: {{- toYaml .Values.tls.issuerRef | nindent 4 }}
{{- end }}
{{- end }}

{{/* The certificate of a node for the other nodes: its number is in the URI. Takes (root, number). */}}
{{- define "penstock.nodeCertificate" -}}
{{- $root := index . 0 }}{{ $number := index . 1 -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {{- include "penstock.metadata" (list $root "nsqd" (printf "node-%d" $number)) | nindent 2 }}
spec:
  secretName: {{ include "penstock.name" $root }}-node-{{ $number }}
  commonName: penstock node {{ $number }}
  usages: [server auth, client auth]
  uris: ["penstock:node:{{ $number }}"]
  issuerRef: {{- toYaml $root.Values.cluster.tls.issuerRef | nindent 4 }}
{{- end }}

{{- define "penstock.serviceMonitor" -}}
{{- if .Values.serviceMonitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "penstock.metadata" (list . "monitor" "monitor") | nindent 2 }}
    {{- with .Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: penstock, app.kubernetes.io/instance: {{ .Release.Name }}}
    matchExpressions:  # not the Service of the publishers, which has the same pods
      - {key: app.kubernetes.io/component, operator: In, values: [nsqd, nsqlookupd, nsqadmin]}
  endpoints: [{port: http, interval: {{ .Values.serviceMonitor.interval }}, path: /metrics}]
{{- end }}
{{- end }}
