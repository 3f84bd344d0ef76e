{{/* The name of the page's objects. */}}
{{- define "noonctl.page" -}}
{{ include "noonlock.fullname" . | trunc 58 | trimSuffix "-" }}-page
{{- end -}}

{{/* The arguments of noonctl before the command. */}}
{{- define "noonctl.args" -}}
{{- $name := .Values.name | default (include "noonlock.fullname" .) -}}
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

{{/* The variables of noonctl for Redis, the mount and the volume of its certificates. */}}
{{- define "noonctl.env" -}}
{{- include "noonlock.redis" (list . "NOONLOCK") }}
{{- include "noonlock.certificateEnv" (list .Values.redis.tls "NOONLOCK_REDIS" "/etc/noonctl/redis") }}
{{- end -}}

{{- define "noonctl.mount" -}}
{{- include "noonlock.certificateMount" (list .Values.redis.tls "redis-tls" "/etc/noonctl/redis") }}
{{- end -}}

{{- define "noonctl.volume" -}}
{{- include "noonlock.certificateVolume" (list .Values.redis.tls "redis-tls") }}
{{- end -}}
