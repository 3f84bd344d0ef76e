{{/* The name of the page's objects. */}}
{{- define "noonctl.page" -}}
{{ include "noonlock.fullname" . | trunc 58 | trimSuffix "-" }}-page
{{- end -}}

{{/* The name of the ConfigMap with the crontab file. */}}
{{- define "noonctl.crontab" -}}
{{ include "noonlock.fullname" . }}-crontab
{{- end -}}

{{/* Text if there are pods with a command. */}}
{{- define "noonctl.runs" -}}
{{- if or .Values.command .Values.cron.crontab -}}yes{{- end -}}
{{- end -}}

{{/* The arguments of noonctl, with those of the command. */}}
{{- define "noonctl.args" -}}
{{- $name := .Values.name | default (include "noonlock.fullname" .) -}}
{{- if not .Values.elect.enabled -}}
- cron
{{- if .Values.cron.crontab }}
- --file=/etc/noonctl/cron/crontab
# A changed file replaces the pods, and pods with the old file run no job of it any more.
- --revision={{ int64 (printf "0x%s" (.Values.cron.crontab | sha256sum | trunc 12)) }}
{{- else }}
- {{ $name | quote }}
- {{ .Values.cron.schedule | quote }}
{{- end }}
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
{{- with .Values.elect.podLabel }}
- {{ printf "--pod-label=%s" . | quote }}
{{- end }}
{{- end }}
- --identity=$(POD_NAME)
- --metrics=:{{ .Values.metrics.port | int }}
{{- range .Values.flags }}
- {{ . | quote }}
{{- end }}
{{- with .Values.command }}
{{- range prepend . "--" }}
- {{ . | quote }}
{{- end }}
{{- end }}
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
