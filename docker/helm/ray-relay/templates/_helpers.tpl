{{- define "ray-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ray-relay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "ray-relay.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ray-relay.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ray-relay.selector" -}}
app.kubernetes.io/name: {{ include "ray-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object but pods. */}}
{{- define "ray-relay.labels" -}}
{{ include "ray-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: ray-relay
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ray-relay.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "ray-relay.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "ray-relay.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* Of what is in no namespace. */}}
{{- define "ray-relay.clusterWide" -}}
{{- $name := include "ray-relay.fullname" . -}}
{{- if eq .Release.Namespace $name -}}{{ $name }}{{- else -}}{{ .Release.Namespace }}-{{ $name }}{{- end -}}
{{- end -}}

{{/* Where the head is, for who is not in its pod. */}}
{{- define "ray-relay.rayAddress" -}}
{{ .Values.ray.address | default (printf "http://%s-head-svc:8265" .Values.ray.cluster) }}
{{- end -}}

{{- define "ray-relay.monitored" -}}
{{- if .Values.monitoring.serviceMonitor.enabled -}}true{{- end -}}
{{- end -}}

{{- define "ray-relay.files" -}}
{{- if or .Values.config .Values.policy -}}true{{- end -}}
{{- end -}}

{{/* Ray's own token, as the relay and its agents take it. The pod waits for the Secret until the operator has made it. */}}
{{- define "ray-relay.rayToken" -}}
{{- if .Values.ray.token.enabled -}}
- name: RAY_AUTH_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.ray.token.existingSecret | default .Values.ray.cluster }}
      key: {{ .Values.ray.token.key }}
{{- end }}
{{- end -}}

{{/* What the values may not say together. */}}
{{- define "ray-relay.validate" -}}
{{- $v := .Values -}}
{{- if not (or $v.auth.existingSecret $v.auth.kubernetes.enabled $v.config $v.policy) -}}
{{- fail "no client would be authenticated: give auth.existingSecret or auth.kubernetes.enabled, or say it in config" -}}
{{- end -}}
{{- if and (gt (int $v.replicas) 1) (not $v.agents.enabled) -}}
{{- fail "replicas: more than one takes agents.enabled; without agents a relay knows of its own sessions only" -}}
{{- end -}}
{{- if and (gt (int $v.replicas) 1) (not $v.auth.tickets.existingSecret) -}}
{{- fail "replicas: more than one takes auth.tickets.existingSecret, by which they trust each other" -}}
{{- end -}}
{{- if and $v.agents.enabled (not $v.auth.kubernetes.enabled) -}}
{{- fail "agents.enabled takes auth.kubernetes.enabled: the relay knows agents by their ServiceAccount" -}}
{{- end -}}
{{- if and $v.agents.enabled (not $v.tls.existingSecret) -}}
{{- fail "agents.enabled takes tls.existingSecret: agents link over TLS" -}}
{{- end -}}
{{- if and (eq $v.mode "headSidecar") (not $v.rayCluster.create) -}}
{{- fail "mode headSidecar takes rayCluster.create: a RayCluster that is there already is yours to change" -}}
{{- end -}}
{{- if and $v.discovery.enabled (or (ne $v.mode "deployment") $v.agents.enabled) -}}
{{- fail "discovery.enabled takes mode deployment, without agents.enabled: agents here are those of one cluster" -}}
{{- end -}}
{{- if and (eq $v.mode "headSidecar") (or (gt (int $v.replicas) 1) $v.agents.enabled $v.auth.kubernetes.enabled $v.monitoring.serviceMonitor.enabled) -}}
{{- fail "mode headSidecar is one relay without agents, auth.kubernetes and a ServiceMonitor: they would open the head's pod" -}}
{{- end -}}
{{- end -}}
