{{/*
A resource with the fields of .Values.merge and the changes of .Values.patch; nothing if its template is empty.
Takes (root, its name, its YAML).
*/}}
{{- define "penstock.resource" }}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $text := index . 2 }}
{{- if trim $text }}
{{- $resource := fromYaml $text }}
{{- if hasKey $resource "Error" }}{{ fail (printf "%s: %s" $name $resource.Error) }}{{ end }}
{{- $holder := dict "value" (mustMergeOverwrite $resource (deepCopy (dig $name dict $root.Values.merge))) }}
{{- range $number, $operation := dig $name list $root.Values.patch }}
{{- include "penstock.patch" (list $holder $operation (printf "patch.%s[%d]" $name $number)) }}
{{- end }}
---
{{ toYaml $holder.value }}
{{- end }}
{{- end }}

{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-penstock{{ end }}
{{- end }}

{{/* Labels by which a part is selected. Takes (root, part). */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Name, namespace and labels of a resource. Takes (root, part, what follows the release's name). */}}
{{- define "penstock.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "penstock.name" $root }}-{{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "penstock.selector" (list $root (index . 1)) | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{/* The DNS suffix of the pods behind a headless Service. Takes (root, part). */}}
{{- define "penstock.domain" -}}
{{- $root := index . 0 -}}
{{ include "penstock.name" $root }}-{{ index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end }}

{{/* host:port of each pod of a StatefulSet, with commas between. Takes (root, part, headless Service, port). */}}
{{- define "penstock.pods" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}{{ $port := index . 3 }}
{{- $domain := include "penstock.domain" (list $root (index . 2)) }}
{{- $hosts := list }}
{{- range until (int (index $root.Values $part).replicas) }}
{{- $hosts = append $hosts (printf "%s-%s-%d.%s:%d" (include "penstock.name" $root) $part . $domain (int $port)) }}
{{- end }}
{{- join "," $hosts }}
{{- end }}

{{/* A flag for each entry of a map; several for a list. */}}
{{- define "penstock.flags" -}}
{{- range $flag, $value := . }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
- {{ printf "-%s=%v" $flag . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Fields of a pod that all parts have. Takes (root, part). */}}
{{- define "penstock.pod" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}{{ $values := index $root.Values $part -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "penstock.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels: {{- include "penstock.selector" . | nindent 14 }}
      - weight: 50
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "penstock.selector" . | nindent 14 }}
{{- end }}

{{/* Image, security and resources of a container. Takes (root, part). */}}
{{- define "penstock.container" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext: {{- include "penstock.containerSecurity" $root | nindent 2 }}
resources: {{- toYaml (index $root.Values (index . 1)).resources | nindent 2 }}
{{- end }}

{{- define "penstock.hasTls" -}}
{{- if or .Values.tls.secretName .Values.tls.issuerRef }}yes{{ end }}
{{- end }}

{{/* Variables of a daemon's rights and of the names by which it is reached. Takes (root, the prefix of its options). */}}
{{- define "penstock.accessEnv" -}}
{{- $root := index . 0 }}{{ $prefix := index . 1 }}{{ $namespace := $root.Release.Namespace }}
- {name: {{ $prefix }}_ALLOWED_HOST, value: ".{{ $namespace }}.svc.{{ $root.Values.clusterDomain }},.{{ $namespace }}.svc,.{{ $namespace }}"}
{{- if $root.Values.auth.secretName }}
- {name: {{ $prefix }}_AUTH_FILE, value: /auth/auth.toml}
{{- end }}
{{- if and $root.Values.auth.adminTokenSecretName (ne $prefix "NSQLOOKUPD") }}
- {name: {{ $prefix }}_AUTH_TOKEN_FILE, value: /token/token}
{{- end }}
{{- end }}

{{- define "penstock.accessMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.auth.secretName }}
- {name: auth, mountPath: /auth, readOnly: true}
{{- end }}
{{- if .Values.auth.adminTokenSecretName }}
- {name: token, mountPath: /token, readOnly: true}
{{- end }}
{{- end }}

{{- define "penstock.accessVolumes" -}}
- {name: tmp, emptyDir: {}}
{{- with .Values.auth.secretName }}
- name: auth
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.auth.adminTokenSecretName }}
- name: token
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* A probe by GET. Takes (path, port). */}}
{{- define "penstock.probe" -}}
httpGet: {path: {{ index . 0 }}, port: {{ index . 1 }}}
timeoutSeconds: 3
periodSeconds: 10
{{- end }}
