{{/* Settings of all pods. */}}
{{- define "noonctl.pod" -}}
serviceAccountName: {{ include "noonctl.serviceAccount" . | quote }}
enableServiceLinks: false
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $secrets := list }}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How the pods of the command are spread. All of them run, even with too few nodes or zones. */}}
{{- define "noonctl.spread" -}}
{{- $selector := dict "matchLabels" (include "noonctl.selector" (list . "replica") | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- else -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" -}}
{{- /* The pods of each rollout are spread separately. */ -}}
{{- $constraints = append $constraints (dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- end -}}
topologySpreadConstraints:
  {{- toYaml $constraints | nindent 2 }}
{{- end -}}

{{/* The arguments of noonctl before the command. */}}
{{- define "noonctl.args" -}}
{{- $name := .Values.name | default (include "noonctl.fullname" .) -}}
{{- if .Values.cron.schedule -}}
- cron
- {{ $name | quote }}
- {{ .Values.cron.schedule | quote }}
{{- with .Values.cron }}
- {{ printf "--time-zone=%s" .timeZone | quote }}
{{- with .runTimeout }}
- {{ printf "--run-timeout=%s" . | quote }}
{{- end }}
- --max-attempts={{ .maxAttempts | int }}
- --catch-up={{ .catchUp }}
- {{ printf "--ttl=%s" .ttl | quote }}
- --drain={{ .drainSeconds | int }}s
- --kill-after={{ .killAfterSeconds | int }}s
{{- end }}
{{- else -}}
- elect
- {{ $name | quote }}
- {{ printf "--lease=%s" .Values.elect.lease | quote }}
{{- end }}
- --identity=$(POD_NAME)
- --metrics=:{{ .Values.metrics.port | int }}
{{- range .Values.flags }}
- {{ . | quote }}
{{- end }}
- --
{{- end -}}

{{/* The variables of noonctl for Redis. */}}
{{- define "noonctl.env" -}}
- name: NOONLOCK_REDIS
{{- if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret | quote }}
      key: {{ .Values.redis.secretKey | quote }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if or .ca.existingSecret .ca.configMap }}
- name: NOONLOCK_REDIS_CA
  value: /etc/noonctl/redis/ca.crt
{{- end }}
{{- if .client.existingSecret }}
- name: NOONLOCK_REDIS_CERT
  value: /etc/noonctl/redis/tls.crt
- name: NOONLOCK_REDIS_KEY
  value: /etc/noonctl/redis/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets and ConfigMaps with the certificates for Redis, as sources of a volume. */}}
{{- define "noonctl.certificates" -}}
{{- with .Values.redis.tls -}}
{{- $sources := list -}}
{{- $authorities := list (dict "key" .ca.file "path" "ca.crt") -}}
{{- with .ca.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- with .ca.configMap }}{{ $sources = append $sources (dict "configMap" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- $pair := list (dict "key" .client.certFile "path" "tls.crt") (dict "key" .client.keyFile "path" "tls.key") -}}
{{- with .client.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $pair)) }}{{ end -}}
{{- with $sources }}{{ toYaml . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "noonctl.mounts" -}}
{{- if include "noonctl.certificates" . -}}
- name: redis-tls
  mountPath: /etc/noonctl/redis
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "noonctl.volumes" -}}
{{- with include "noonctl.certificates" . -}}
- name: redis-tls
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end -}}
{{- end -}}
