{{/* The relay's container: of a pod of its own, or of the head's. */}}
{{- define "ray-relay.container" -}}
{{- $v := .Values -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne $v.tls.existingSecret "") -}}
name: ray-relay
image: {{ include "ray-relay.image" . }}
imagePullPolicy: {{ $v.image.pullPolicy }}
args:
  - serve
  # All of the pod's addresses, for the probes.
  - --listen=0.0.0.0:5678
  {{- if $v.config }}
  - --config=/etc/ray-relay-config/config.toml
  {{- end }}
  {{- if $v.auth.existingSecret }}
  {{- range $v.auth.keys }}
  - --auth-key=/etc/ray-relay/{{ . }}
  {{- end }}
  {{- end }}
  {{- if eq $v.mode "headSidecar" }}
  - --ray-address=http://127.0.0.1:8265
  {{- else if not $v.discovery.enabled }}
  - --ray-address={{ include "ray-relay.rayAddress" . }}
  {{- end }}
env: {{- if not (or $v.discovery.enabled $v.ray.token.enabled $v.policy $v.auth.kubernetes.enabled $v.tls.existingSecret $v.http.allowedHosts (include "ray-relay.monitored" .) $v.env) }} []{{ end }}
  {{- if $v.discovery.enabled }}
  - { name: RAY_RELAY_DISCOVERY_KUBERNETES, value: "true" }
  {{- with $v.discovery.namespaces }}
  - { name: RAY_RELAY_DISCOVERY_NAMESPACES, value: {{ join "," . | quote }} }
  {{- end }}
  {{- with $v.discovery.labelSelector }}
  - { name: RAY_RELAY_DISCOVERY_LABEL_SELECTOR, value: {{ . | quote }} }
  {{- end }}
  {{- else }}
  {{- include "ray-relay.rayToken" . | nindent 2 }}
  {{- end }}
  {{- if $v.policy }}
  - { name: RAY_RELAY_AUTH_POLICY_FILE, value: /etc/ray-relay-config/policy.toml }
  {{- end }}
  {{- if $v.auth.kubernetes.enabled }}
  - { name: RAY_RELAY_KUBERNETES_ENABLED, value: "true" }
  - { name: RAY_RELAY_KUBERNETES_AUDIENCES, value: {{ join "," $v.auth.kubernetes.audiences | quote }} }
  {{- end }}
  {{- if $v.tls.existingSecret }}
  - { name: RAY_RELAY_TLS_CERT_FILE, value: /etc/ray-relay-tls/tls.crt }
  - { name: RAY_RELAY_TLS_KEY_FILE, value: /etc/ray-relay-tls/tls.key }
  {{- end }}
  {{- $hosts := $v.http.allowedHosts }}
  {{- if $v.agents.enabled }}
  {{- $hosts = append $hosts (printf "%s-agents" (include "ray-relay.fullname" .)) }}
  # No way to a worker but through its node's agent.
  - { name: RAY_RELAY_UPSTREAM_PATH, value: agent }
  {{- end }}
  {{- if $hosts }}
  - { name: RAY_RELAY_HTTP_ALLOWED_HOSTS, value: {{ join "," $hosts | quote }} }
  {{- end }}
  {{- if gt (int $v.replicas) 1 }}
  - { name: RAY_RELAY_AUTH_TICKET_KEY_FILE, value: /etc/ray-relay-tickets/{{ $v.auth.tickets.key }} }
  {{- end }}
  {{- if include "ray-relay.monitored" . }}
  # A token with the permission `admin`, which the metrics take otherwise, could revoke. Who else reaches the port is
  # up to the NetworkPolicy.
  - { name: RAY_RELAY_HTTP_METRICS_OPEN, value: "true" }
  {{- end }}
  {{- with $v.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - { name: relay, containerPort: 5678 }
# Open without a token. A head that is away does not fail the liveness probe: a restart would not bring it back, and
# would end live sessions.
startupProbe:
  httpGet: { path: /relay/healthz, port: relay, scheme: {{ $scheme }} }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 30
livenessProbe:
  httpGet: { path: /relay/healthz, port: relay, scheme: {{ $scheme }} }
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 3
{{- if ne $v.mode "headSidecar" }}
readinessProbe:
  httpGet: { path: /relay/readyz, port: relay, scheme: {{ $scheme }} }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
volumeMounts: {{- if not (or (include "ray-relay.volumes" .) $v.extraVolumeMounts) }} []{{ end }}
  {{- if $v.auth.existingSecret }}
  - { name: relay-auth, mountPath: /etc/ray-relay, readOnly: true }
  {{- end }}
  {{- if include "ray-relay.files" . }}
  - { name: relay-config, mountPath: /etc/ray-relay-config, readOnly: true }
  {{- end }}
  {{- if $v.tls.existingSecret }}
  - { name: relay-tls, mountPath: /etc/ray-relay-tls, readOnly: true }
  {{- end }}
  {{- if gt (int $v.replicas) 1 }}
  - { name: relay-tickets, mountPath: /etc/ray-relay-tickets, readOnly: true }
  {{- end }}
  {{- with $v.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources: {{- toYaml $v.resources | nindent 2 }}
securityContext: {{- toYaml $v.securityContext | nindent 2 }}
{{- end -}}

{{/* Its volumes; empty without any. */}}
{{- define "ray-relay.volumes" -}}
{{- if .Values.auth.existingSecret }}
# Public keys alone: the key that signs has no business in the cluster. Read again when it changes.
- name: relay-auth
  secret: { secretName: {{ .Values.auth.existingSecret }} }
{{- end }}
{{- if include "ray-relay.files" . }}
- name: relay-config
  configMap: { name: {{ include "ray-relay.fullname" . }} }
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: relay-tls
  secret: { secretName: {{ .Values.tls.existingSecret }} }
{{- end }}
{{- if gt (int .Values.replicas) 1 }}
- name: relay-tickets
  secret: { secretName: {{ .Values.auth.tickets.existingSecret }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
