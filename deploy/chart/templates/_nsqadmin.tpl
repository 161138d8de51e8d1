{{- define "penstock.nsqadminService" -}}
{{- if .Values.nsqadmin.enabled }}
apiVersion: v1
kind: Service
metadata: {{- include "penstock.metadata" (list . "nsqadmin" "nsqadmin") | nindent 2 }}
spec:
  selector: {{- include "penstock.selector" (list . "nsqadmin") | nindent 4 }}
  ports: [{name: http, port: 4171, targetPort: http}]
{{- end }}
{{- end }}

{{- define "penstock.nsqadminClaim" -}}
{{- if .Values.nsqadmin.enabled }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{- include "penstock.metadata" (list . "nsqadmin" "nsqadmin") | nindent 2 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .Values.nsqadmin.storage.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ .Values.nsqadmin.storage.size }}}}
{{- end }}
{{- end }}

{{- define "penstock.nsqadminDeployment" -}}
{{- if .Values.nsqadmin.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "penstock.metadata" (list . "nsqadmin" "nsqadmin") | nindent 2 }}
spec:
  replicas: 1
  strategy: {type: Recreate}  # one process has the state at a time
  selector:
    matchLabels: {{- include "penstock.selector" (list . "nsqadmin") | nindent 6 }}
  template:
    metadata:
      labels: {{- include "penstock.selector" (list . "nsqadmin") | nindent 8 }}
    spec:
      {{- include "penstock.pod" (list . "nsqadmin") | nindent 6 }}
      containers:
        - {{- include "penstock.container" (list . "nsqadmin") | nindent 10 }}
          args:
            - nsqadmin
            {{- include "penstock.flags" .Values.nsqadmin.flags | nindent 12 }}
          env:
            - {name: NSQADMIN_HTTP_ADDRESS, value: "0.0.0.0:4171"}
            - {name: NSQADMIN_LOOKUPD_HTTP_ADDRESS, value: "{{ include "penstock.pods" (list . "nsqlookupd" "nsqlookupd" 4161) }}"}
            - {name: NSQADMIN_STATE_DIR, value: /data}
            {{- include "penstock.accessEnv" (list . "NSQADMIN") | nindent 12 }}
            {{- if .Values.auth.adminTokenSecretName }}
            - {name: NSQADMIN_AUTH_TOKEN_FOR, value: "*.{{ include "penstock.domain" (list . "nsqd-pods") }}:4151"}
            {{- end }}
            {{- with .Values.nsqadmin.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports: [{name: http, containerPort: 4171}]
          livenessProbe: {{- include "penstock.probe" (list "/livez" "http") | nindent 12 }}
          readinessProbe: {{- include "penstock.probe" (list "/readyz" "http") | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            {{- include "penstock.accessMounts" . | nindent 12 }}
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: {{ include "penstock.name" . }}-nsqadmin}
        {{- include "penstock.accessVolumes" . | nindent 8 }}
{{- end }}
{{- end }}
