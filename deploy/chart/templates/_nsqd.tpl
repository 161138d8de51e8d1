{{- define "penstock.isCluster" -}}
{{- if gt (int .Values.nsqd.replicas) 1 }}yes{{ end }}
{{- end }}

{{/* Ports of the clients of NSQ, and of its HTTP. */}}
{{- define "penstock.nsqdPorts" -}}
- {name: tcp, port: 4150, targetPort: tcp}
- {name: http, port: 4151, targetPort: http}
{{- if include "penstock.hasTls" . }}
- {name: https, port: 4152, targetPort: https}
{{- end }}
{{- end }}

{{- define "penstock.nsqdHeadlessService" -}}
apiVersion: v1
kind: Service
metadata: {{- include "penstock.metadata" (list . "nsqd" "nsqd-pods") | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true  # a node is found by its name while it starts, and others connect to it
  selector: {{- include "penstock.selector" (list . "nsqd") | nindent 4 }}
  ports:
    {{- include "penstock.nsqdPorts" . | nindent 4 }}
    {{- if include "penstock.isCluster" . }}
    - {name: cluster, port: 4154, targetPort: cluster}
    {{- end }}
{{- end }}

{{- define "penstock.nsqdService" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "penstock.metadata" (list . "publishers" "nsqd") | nindent 2 }}
  {{- with .Values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .Values.service.type }}
  selector: {{- include "penstock.selector" (list . "nsqd") | nindent 4 }}
  ports: {{- include "penstock.nsqdPorts" . | nindent 4 }}
{{- end }}

{{- define "penstock.nsqdPodDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "penstock.metadata" (list . "nsqd" "nsqd") | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "penstock.selector" (list . "nsqd") | nindent 6 }}
{{- end }}

{{/* The environment of nsqd: its number and name are those of the pod. */}}
{{- define "penstock.nsqdEnv" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NSQD_NODE_ID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
- name: NSQD_TOPOLOGY_ZONE  # empty before Kubernetes 1.35, which gives pods this label of their node
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
- {name: NSQD_DATA_PATH, value: /data/nsqd}
- {name: NSQD_TCP_ADDRESS, value: "0.0.0.0:4150"}
- {name: NSQD_HTTP_ADDRESS, value: "0.0.0.0:4151"}
- {name: NSQD_BROADCAST_ADDRESS, value: "$(POD_NAME).{{ include "penstock.domain" (list . "nsqd-pods") }}"}
- {name: NSQD_LOOKUPD_TCP_ADDRESS, value: "{{ include "penstock.pods" (list . "nsqlookupd" "nsqlookupd" 4160) }}"}
{{- if include "penstock.hasTls" . }}
- {name: NSQD_HTTPS_ADDRESS, value: "0.0.0.0:4152"}
- {name: NSQD_TLS_CERT, value: /tls/tls.crt}
- {name: NSQD_TLS_KEY, value: /tls/tls.key}
{{- if .Values.tls.required }}
- {name: NSQD_TLS_REQUIRED, value: tcp-https}
{{- end }}
{{- end }}
{{- if include "penstock.isCluster" . }}
- {name: NSQD_CLUSTER_ADDRESS, value: "0.0.0.0:4154"}
- {name: NSQD_CLUSTER_PEER, value: "{{ include "penstock.pods" (list . "nsqd" "nsqd-pods" 4154) }}"}
- {name: NSQD_CLUSTER_SECRET_FILE, value: /cluster/cluster.secret}
- {name: NSQD_FAILOVER_QUORUM, value: {{ .Values.cluster.failoverQuorum }}}
- {name: NSQD_CLUSTER_TLS_CA, value: /cluster/ca.pem}
- {name: NSQD_CLUSTER_TLS_CERT, value: /cluster/node-$(NSQD_NODE_ID).pem}
- {name: NSQD_CLUSTER_TLS_KEY, value: /cluster/node-$(NSQD_NODE_ID)-key.pem}
{{- end }}
- {name: NSQD_REQUIRE_AUTH, value: "{{ ne .Values.auth.secretName "" }}"}
{{- include "penstock.accessEnv" (list . "NSQD") }}
{{- with .Values.nsqd.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Have the node refuse publishes, and wait until producers have noticed: then comes SIGTERM. The token is for an auth file. */}}
{{- define "penstock.nsqdDrain" -}}
import contextlib, time, urllib.request
from pathlib import Path

headers = {}
if (token := Path("/token/token")).exists():
    headers["Authorization"] = "Bearer " + token.read_text().strip()
with contextlib.suppress(OSError):
    urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:4151/node/drain", b"", headers), timeout=2)
time.sleep({{ .Values.nsqd.drainSeconds }})
{{- end }}

{{- define "penstock.nsqdClusterVolume" -}}
- name: cluster
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ required "cluster.secretName: more than one replica needs the Secret with cluster.secret" .Values.cluster.secretName }}}
      {{- if .Values.cluster.tls.secretName }}
      - secret: {name: {{ .Values.cluster.tls.secretName }}}
      {{- else if .Values.cluster.tls.issuerRef }}
      {{- $root := . }}
      {{- range $number := until (int .Values.nsqd.replicas) }}
      - secret:
          name: {{ include "penstock.name" $root }}-node-{{ $number }}
          items:
            - {key: tls.crt, path: node-{{ $number }}.pem}
            - {key: tls.key, path: node-{{ $number }}-key.pem}
            {{- if not $number }}
            - {key: ca.crt, path: ca.pem}
            {{- end }}
      {{- end }}
      {{- else }}
      {{- fail "cluster.tls: more than one replica needs secretName, or cert-manager's issuerRef" }}
      {{- end }}
{{- end }}

{{- define "penstock.nsqdStatefulSet" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata: {{- include "penstock.metadata" (list . "nsqd" "nsqd") | nindent 2 }}
spec:
  replicas: {{ .Values.nsqd.replicas }}
  serviceName: {{ include "penstock.name" . }}-nsqd-pods
  podManagementPolicy: Parallel  # a new node takes no messages until it has reached the others
  minReadySeconds: 10
  selector:
    matchLabels: {{- include "penstock.selector" (list . "nsqd") | nindent 6 }}
  template:
    metadata:
      labels: {{- include "penstock.selector" (list . "nsqd") | nindent 8 }}
    spec:
      {{- include "penstock.pod" (list . "nsqd") | nindent 6 }}
      terminationGracePeriodSeconds: {{ .Values.nsqd.terminationGracePeriodSeconds }}
      containers:
        - {{- include "penstock.container" (list . "nsqd") | nindent 10 }}
          args:
            - nsqd
            {{- include "penstock.flags" .Values.nsqd.flags | nindent 12 }}
          env: {{- include "penstock.nsqdEnv" . | nindent 12 }}
          ports:
            - {name: tcp, containerPort: 4150}
            - {name: http, containerPort: 4151}
            {{- if include "penstock.hasTls" . }}
            - {name: https, containerPort: 4152}
            {{- end }}
            {{- if include "penstock.isCluster" . }}
            - {name: cluster, containerPort: 4154}
            {{- end }}
          startupProbe:
            {{- include "penstock.probe" (list "/livez" "http") | nindent 12 }}
            failureThreshold: {{ div .Values.nsqd.startupSeconds 10 }}
          livenessProbe:
            {{- include "penstock.probe" (list "/livez" "http") | nindent 12 }}
            failureThreshold: 6
          readinessProbe:
            {{- include "penstock.probe" (list "/readyz" "http") | nindent 12 }}
            failureThreshold: 1
          lifecycle:
            preStop:
              exec:
                command:
                  - python
                  - -c
                  - |
                    {{- include "penstock.nsqdDrain" . | nindent 20 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            {{- if include "penstock.isCluster" . }}
            - {name: cluster, mountPath: /cluster, readOnly: true}
            {{- end }}
            {{- if include "penstock.hasTls" . }}
            - {name: tls, mountPath: /tls, readOnly: true}
            {{- end }}
            {{- include "penstock.accessMounts" . | nindent 12 }}
      initContainers:
        - name: directory  # a volume of its own would begin with lost+found
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command: [python, -c, "import os; os.makedirs('/data/nsqd', 0o700, exist_ok=True)"]
          securityContext: {{- include "penstock.containerSecurity" . | nindent 12 }}
          resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
          volumeMounts: [{name: data, mountPath: /data}]
      volumes:
        {{- if include "penstock.isCluster" . }}
        {{- include "penstock.nsqdClusterVolume" . | nindent 8 }}
        {{- end }}
        {{- if include "penstock.hasTls" . }}
        - name: tls
          secret: {secretName: {{ .Values.tls.secretName | default (printf "%s-tls" (include "penstock.name" .)) }}, defaultMode: 0440}
        {{- end }}
        {{- include "penstock.accessVolumes" . | nindent 8 }}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels: {{- include "penstock.selector" (list . "nsqd") | nindent 10 }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .Values.nsqd.storage.storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .Values.nsqd.storage.size }}}}
{{- end }}
