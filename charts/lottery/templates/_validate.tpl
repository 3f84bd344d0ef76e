{{/*
What values.schema.json cannot say, or not in a sentence. Everything wrong is told at
once.
*/}}
{{- define "lottery.validate" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}

{{- $least := add $v.lottery.drainSeconds 15 | int -}}
{{- if lt (int $v.terminationGracePeriodSeconds) $least -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d; it must be at least lottery.drainSeconds + 15, %d, or a pod is killed before it has finished its draw and released it" (int $v.terminationGracePeriodSeconds) $least) -}}
{{- end -}}

{{- $redis := list -}}
{{- if $v.redis.enabled }}{{ $redis = append $redis "redis.enabled" }}{{ end -}}
{{- if $v.redis.existingSecret }}{{ $redis = append $redis "redis.existingSecret" }}{{ end -}}
{{- if ne (len $redis) 1 -}}
{{- $wrong = append $wrong (printf "of redis.existingSecret and redis.enabled, %s; there must be exactly one" (include "lottery.given" $redis)) -}}
{{- end -}}

{{- $database := list -}}
{{- if $v.database.sqlite.enabled }}{{ $database = append $database "database.sqlite.enabled" }}{{ end -}}
{{- if $v.database.existingSecret }}{{ $database = append $database "database.existingSecret" }}{{ end -}}
{{- if ne (len $database) 1 -}}
{{- $wrong = append $wrong (printf "of database.existingSecret and database.sqlite.enabled, %s; there must be exactly one" (include "lottery.given" $database)) -}}
{{- end -}}

{{- $entrants := list -}}
{{- range $name := list "inline" "configMap" "claim" -}}
{{- if index $v.entrants $name }}{{ $entrants = append $entrants (printf "entrants.%s" $name) }}{{ end -}}
{{- end -}}
{{- if ne (len $entrants) 1 -}}
{{- $wrong = append $wrong (printf "of entrants.inline, entrants.configMap and entrants.claim, %s; there must be exactly one, such as --set-file entrants.inline=entrants.csv" (include "lottery.given" $entrants)) -}}
{{- end -}}
{{- if $v.entrants.inline -}}
{{- if not (regexMatch "^\ufeff?id,eligible\r?\n" $v.entrants.inline) -}}
{{- $wrong = append $wrong "entrants.inline does not begin with the header id,eligible; it must be the text of a CSV file" -}}
{{- end -}}
{{- if gt (len $v.entrants.inline) 900000 -}}
{{- $wrong = append $wrong (printf "entrants.inline has %d bytes; it must have at most 900000, use entrants.claim for more" (len $v.entrants.inline)) -}}
{{- end -}}
{{- end -}}
{{- if or (hasPrefix "/" $v.entrants.file) (regexMatch "(^|/)\\.\\.(/|$)" $v.entrants.file) -}}
{{- $wrong = append $wrong (printf "entrants.file is %q; it must be a key or a path without a leading / and without .." $v.entrants.file) -}}
{{- end -}}

{{- if not (regexMatch "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every \\S+|\\S+( +\\S+){4})$" $v.lottery.schedule) -}}
{{- $wrong = append $wrong (printf "lottery.schedule is %q; it must be a cron expression of five fields, @daily and the like, or @every DURATION" $v.lottery.schedule) -}}
{{- end -}}
{{- if or (eq $v.lottery.timeZone "Local") (not (regexMatch "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$" $v.lottery.timeZone)) -}}
{{- $wrong = append $wrong (printf "lottery.timeZone is %q; it must be a name of the IANA database, such as Asia/Shanghai or UTC" $v.lottery.timeZone) -}}
{{- end -}}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$" $v.lottery.lease) -}}
{{- $wrong = append $wrong (printf "lottery.lease is %q; it must be a duration from 100ms to 24h, such as 10s" $v.lottery.lease) -}}
{{- end -}}
{{- if not (regexMatch "^([0-9]+(ms|s|m|h))+$" $v.monitoring.serviceMonitor.interval) -}}
{{- $wrong = append $wrong (printf "monitoring.serviceMonitor.interval is %q; it must be a duration such as 30s" $v.monitoring.serviceMonitor.interval) -}}
{{- end -}}

{{- range $where, $name := dict "redis.existingSecret" $v.redis.existingSecret "database.existingSecret" $v.database.existingSecret "entrants.configMap" $v.entrants.configMap "entrants.claim" $v.entrants.claim -}}
{{- if and $name (or (gt (len $name) 253) (not (regexMatch "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$" $name))) -}}
{{- $wrong = append $wrong (printf "%s is %q; it must be the name of an object: lower-case letters, digits, dots and dashes" $where $name) -}}
{{- end -}}
{{- end -}}
{{- range $where, $size := dict "redis.storage.size" $v.redis.storage.size "database.sqlite.size" $v.database.sqlite.size -}}
{{- if not (regexMatch "^[1-9][0-9]*(\\.[0-9]+)?([KMGT]i?|k)?$" $size) -}}
{{- $wrong = append $wrong (printf "%s is %q; it must be a quantity such as 1Gi" $where $size) -}}
{{- end -}}
{{- end -}}

{{- if $wrong -}}
{{- fail (printf "\n\nThese values are refused:\n  * %s\n" (join "\n  * " $wrong)) -}}
{{- end -}}
{{- end -}}

{{- define "lottery.given" -}}
{{- if . -}}{{ join " and " . }} {{ if eq (len .) 1 }}is{{ else }}are{{ end }} given{{- else -}}none is given{{- end -}}
{{- end -}}
