{{- define "penstock.nsqlookupdService" -}}
apiVersion: v1
kind: Service
metadata: {{- include "penstock.metadata" (list . "nsqlookupd" "nsqlookupd") | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "penstock.selector" (list . "nsqlookupd") | nindent 4 }}
  ports:
    - {name: tcp, port: 4160, targetPort: tcp}
    - {name: http, port: 4161, targetPort: http}
{{- end }}

{{- define "penstock.nsqlookupdPodDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "penstock.metadata" (list . "nsqlookupd" "nsqlookupd") | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "penstock.selector" (list . "nsqlookupd") | nindent 6 }}
{{- end }}

{{- define "penstock.nsqlookupdStatefulSet" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata: {{- include "penstock.metadata" (list . "nsqlookupd" "nsqlookupd") | nindent 2 }}
spec:
  replicas: {{ .Values.nsqlookupd.replicas }}
  serviceName: {{ include "penstock.name" . }}-nsqlookupd
  podManagementPolicy: Parallel
  minReadySeconds: 30  # every nsqd is registered again by then
  selector:
    matchLabels: {{- include "penstock.selector" (list . "nsqlookupd") | nindent 6 }}
  template:
    metadata:
      labels: {{- include "penstock.selector" (list . "nsqlookupd") | nindent 8 }}
    spec:
      {{- include "penstock.pod" (list . "nsqlookupd") | nindent 6 }}
      containers:
        - {{- include "penstock.container" (list . "nsqlookupd") | nindent 10 }}
          args:
            - nsqlookupd
            {{- include "penstock.flags" .Values.nsqlookupd.flags | nindent 12 }}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - {name: NSQLOOKUPD_TCP_ADDRESS, value: "0.0.0.0:4160"}
            - {name: NSQLOOKUPD_HTTP_ADDRESS, value: "0.0.0.0:4161"}
            - {name: NSQLOOKUPD_BROADCAST_ADDRESS, value: "$(POD_NAME).{{ include "penstock.domain" (list . "nsqlookupd") }}"}
            {{- include "penstock.accessEnv" (list . "NSQLOOKUPD") | nindent 12 }}
            {{- with .Values.nsqlookupd.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: tcp, containerPort: 4160}
            - {name: http, containerPort: 4161}
          livenessProbe: {{- include "penstock.probe" (list "/livez" "http") | nindent 12 }}
          readinessProbe: {{- include "penstock.probe" (list "/readyz" "http") | nindent 12 }}
          volumeMounts: {{- include "penstock.accessMounts" . | nindent 12 }}
      volumes: {{- include "penstock.accessVolumes" . | nindent 8 }}
{{- end }}
