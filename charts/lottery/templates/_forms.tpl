{{/*
The forms of values, for _validate.tpl. A template named is… returns text if the value has
the form, and nothing otherwise.
*/}}

{{/* The length of a duration, parsed as in the program; 0 if it is invalid. */}}
{{- define "lottery.nanoseconds" -}}
{{- $start := toDate "2006-01-02" "1970-01-01" -}}
{{- sub (dateModify . $start).UnixNano $start.UnixNano -}}
{{- end -}}

{{/* A duration of Prometheus, above 0. */}}
{{- define "lottery.isPrometheusDuration" -}}
{{- if and (regexMatch "[1-9]" .) (regexMatch "^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" .) -}}yes{{- end -}}
{{- end -}}

{{/* An instant, or a duration before now, parsed as in the program. */}}
{{- define "lottery.isInstant" -}}
{{- if or (eq . "now") (gt (include "lottery.nanoseconds" . | int64) 0) -}}yes{{- end -}}
{{- range $layout := list "2006-01-02T15:04:05.999999999Z07:00" "2006-01-02 15:04:05" "2006-01-02 15:04" "2006-01-02" -}}
{{- if not (toDate $layout $).IsZero -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* A key of a ConfigMap or a Secret. */}}
{{- define "lottery.isKey" -}}
{{- if and (le (len .) 253) (regexMatch "^[A-Za-z0-9._-]+$" .) (ne . ".") (not (hasPrefix ".." .)) -}}yes{{- end -}}
{{- end -}}

{{/* Whether a URL contains a user or a password. It must not be shown then. */}}
{{- define "lottery.hasPassword" -}}
{{- if or (contains "@" .) (regexMatch "[?&]([a-z_]*password|sentinel_username)=" .) -}}yes{{- end -}}
{{- end -}}
