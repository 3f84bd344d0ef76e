{{/*
The name of the bundled Redis, at most 52 characters: Kubernetes adds a dash and a hash of 10
characters, and uses the result as a label, which has at most 63. The hash in a shortened name
keeps apart the objects of two releases with the same beginning.
*/}}
{{- define "lottery.redis.fullname" -}}
{{- $name := include "noonlock.fullname" . -}}
{{- if gt (len $name) 46 -}}
{{- $name = printf "%s-%s" ($name | trunc 37 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name }}-redis
{{- end -}}

{{/* Text if the release has its own Redis. */}}
{{- define "lottery.redis.bundled" -}}
{{- if or .Values.redis.enabled .Values.firstTry -}}yes{{- end -}}
{{- end -}}

{{/* Text if the database is a SQLite file. */}}
{{- define "lottery.sqlite" -}}
{{- if or .Values.database.sqlite.enabled .Values.firstTry -}}yes{{- end -}}
{{- end -}}

{{/* The list of entrants, if it is not in an existing ConfigMap or volume. */}}
{{- define "lottery.entrants" -}}
{{- if .Values.entrants.inline -}}
{{- .Values.entrants.inline -}}
{{- else if and .Values.firstTry (not .Values.entrants.configMap) (not .Values.entrants.claim) -}}
{{- .Files.Get "files/entrants.csv" -}}
{{- end -}}
{{- end -}}
