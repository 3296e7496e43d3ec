{{/* The container of an agent: in each Ray pod, or on each host. */}}
{{- define "ray-relay.agent" -}}
name: ray-relay-node
image: {{ include "ray-relay.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - node
  - --relay=https://{{ include "ray-relay.fullname" . }}-agents:5678
  - --ray-address={{ include "ray-relay.rayAddress" . }}
  - --token-file=/var/run/ray-relay/token
  - --ca-file=/etc/ray-relay/ca.pem
env: {{- if not .Values.ray.token.enabled }} []{{ end }}
  {{- include "ray-relay.rayToken" . | nindent 2 }}
volumeMounts:
  - { name: agent-token, mountPath: /var/run/ray-relay, readOnly: true }
  - { name: ray-relay-ca, mountPath: /etc/ray-relay, readOnly: true }
resources: {{- toYaml .Values.agents.resources | nindent 2 }}
securityContext: {{- toYaml .Values.agents.securityContext | nindent 2 }}
{{- end -}}

{{- define "ray-relay.agentVolumes" -}}
# Mounted by the agent alone. Workers run other people's code.
- name: agent-token
  projected:
    sources:
      - serviceAccountToken:
          audience: {{ first .Values.auth.kubernetes.audiences }}
          expirationSeconds: 3600
          path: token
- name: ray-relay-ca
  configMap: { name: {{ .Values.agents.caConfigMap }} }
{{- end -}}

{{/* Ports that Ray would choose at random otherwise, for the policy. */}}
{{- define "ray-relay.rayStartParams" -}}
{{- if and .Values.agents.enabled (eq .Values.agents.mode "pods") -}}
node-manager-port: "6380"
object-manager-port: "6381"
runtime-env-agent-port: "6382"
dashboard-agent-grpc-port: "6383"
dashboard-agent-listen-port: "52365"
metrics-export-port: "8080"
min-worker-port: "10002"
max-worker-port: "19999"
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/* What an agent needs of its pod. */}}
{{- define "ray-relay.agentPod" -}}
serviceAccountName: {{ include "ray-relay.fullname" . }}-node
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true
{{- end -}}
