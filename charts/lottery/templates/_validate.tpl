{{/* An instant, or a duration before now, parsed as in the program. */}}
{{- define "lottery.isInstant" -}}
{{- if or (eq . "now") (gt (include "noonlock.nanoseconds" . | int64) 0) -}}yes{{- end -}}
{{- range $layout := list "2006-01-02T15:04:05.999999999Z07:00" "2006-01-02 15:04:05" "2006-01-02 15:04" "2006-01-02" -}}
{{- if not (toDate $layout $).IsZero -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* A key of a ConfigMap or a Secret. */}}
{{- define "lottery.isKey" -}}
{{- if and (le (len .) 253) (regexMatch "^[A-Za-z0-9._-]+$" .) (ne . ".") (not (hasPrefix ".." .)) -}}yes{{- end -}}
{{- end -}}

{{/*
Checks that values.schema.json cannot express, or not with a clear message. All errors are
reported together.
*/}}
{{- define "lottery.validate" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}

{{- $least := add $v.lottery.drainSeconds 15 | int -}}
{{- if lt (int $v.terminationGracePeriodSeconds) $least -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d; it must be at least lottery.drainSeconds + 15, %d, or a pod is killed before it has finished its draw and released it" (int $v.terminationGracePeriodSeconds) $least) -}}
{{- end -}}

{{- if and $v.redis.enabled (not (and $v.redis.auth.existingSecret $v.redis.auth.passwordKey)) -}}
{{- $wrong = append $wrong "redis.enabled is true; then redis.auth.existingSecret and redis.auth.passwordKey must name a Secret with a password for it" -}}
{{- end -}}
{{- if and (include "lottery.redis.bundled" .) (or $v.redis.auth.username $v.redis.auth.sentinelPasswordKey) -}}
{{- $wrong = append $wrong "redis.auth.username and redis.auth.sentinelPasswordKey are only for redis.url" -}}
{{- end -}}
{{- if and $v.firstTry $v.redis.auth.existingSecret -}}
{{- $wrong = append $wrong "firstTry is true, and redis.auth.existingSecret is given; its Redis has no password" -}}
{{- end -}}
{{- $redis := list -}}
{{- if $v.redis.url }}{{ $redis = append $redis "redis.url" }}{{ end -}}
{{- if $v.redis.existingSecret }}{{ $redis = append $redis "redis.existingSecret" }}{{ end -}}
{{- if $v.redis.enabled }}{{ $redis = append $redis "redis.enabled" }}{{ end -}}
{{- $database := list -}}
{{- if $v.database.url }}{{ $database = append $database "database.url" }}{{ end -}}
{{- if $v.database.existingSecret }}{{ $database = append $database "database.existingSecret" }}{{ end -}}
{{- if $v.database.sqlite.enabled }}{{ $database = append $database "database.sqlite.enabled" }}{{ end -}}
{{- if $v.firstTry -}}
{{- with concat $redis $database -}}
{{- $wrong = append $wrong (printf "firstTry is true, and %s; a first try has its own Redis and database: leave out one of the two" (include "noonlock.given" .)) -}}
{{- end -}}
{{- else if not (or $redis $database) -}}
{{- $wrong = append $wrong "neither Redis nor a database is given; an installation needs one of redis.url, redis.existingSecret and redis.enabled, and one of database.url, database.existingSecret and database.sqlite.enabled, or only firstTry=true for a first try" -}}
{{- else -}}
{{- if ne (len $redis) 1 -}}
{{- $wrong = append $wrong (printf "of redis.url, redis.existingSecret and redis.enabled, %s; there must be exactly one" (include "noonlock.given" $redis)) -}}
{{- end -}}
{{- if ne (len $database) 1 -}}
{{- $wrong = append $wrong (printf "of database.url, database.existingSecret and database.sqlite.enabled, %s; there must be exactly one" (include "noonlock.given" $database)) -}}
{{- end -}}
{{- end -}}

{{- if $v.database.url -}}
{{- if include "noonlock.hasPassword" (regexReplaceAll "://[^:@/?]*@" $v.database.url "://") -}}
{{- $wrong = append $wrong "database.url contains a password; it must be in database.auth.existingSecret" -}}
{{- else if not (regexMatch "^mysql://[^:@/?#]+@[^/?#]+/[^/?#]+" $v.database.url) -}}
{{- $wrong = append $wrong (printf "database.url is %q; it must be mysql://user@host/database" $v.database.url) -}}
{{- else -}}
{{- $wrong = append $wrong (include "noonlock.wrongPort" (list . "database.url" $v.database.url "3306")) -}}
{{- end -}}
{{- else if $v.database.auth.existingSecret -}}
{{- $wrong = append $wrong "database.auth.existingSecret is given; it is only for database.url" -}}
{{- end -}}

{{- $entrants := list -}}
{{- range $name := list "inline" "configMap" "claim" -}}
{{- if index $v.entrants $name }}{{ $entrants = append $entrants (printf "entrants.%s" $name) }}{{ end -}}
{{- end -}}
{{- if and (ne (len $entrants) 1) (not (and $v.firstTry (not $entrants))) -}}
{{- $wrong = append $wrong (printf "of entrants.inline, entrants.configMap and entrants.claim, %s; there must be exactly one, such as --set-file entrants.inline=entrants.csv" (include "noonlock.given" $entrants)) -}}
{{- end -}}
{{- if $v.entrants.inline -}}
{{- if not (regexMatch "^\ufeff?id,eligible\r?\n" $v.entrants.inline) -}}
{{- $wrong = append $wrong "entrants.inline does not begin with the header id,eligible; it must be the text of a CSV file" -}}
{{- end -}}
{{- if gt (len $v.entrants.inline) 900000 -}}
{{- $wrong = append $wrong (printf "entrants.inline has %d bytes; it must have at most 900000, use entrants.claim for more" (len $v.entrants.inline)) -}}
{{- end -}}
{{- end -}}
{{- if not $v.entrants.claim -}}
{{- if not (include "lottery.isKey" $v.entrants.file) -}}
{{- $wrong = append $wrong (printf "entrants.file is %q; without entrants.claim it is a key of a ConfigMap: letters, digits, dots, dashes and underscores, and no .. at its start" $v.entrants.file) -}}
{{- end -}}
{{- else if or (hasPrefix "/" $v.entrants.file) (regexMatch "(^|/)\\.\\.(/|$)" $v.entrants.file) (regexMatch "[[:cntrl:]]" $v.entrants.file) -}}
{{- $wrong = append $wrong (printf "entrants.file is %q; it must be a path in the volume without a leading / and without .." $v.entrants.file) -}}
{{- end -}}

{{- if or (eq $v.lottery.timeZone "Local") (not (regexMatch "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$" $v.lottery.timeZone)) -}}
{{- $wrong = append $wrong (printf "lottery.timeZone is %q; it must be a name of the IANA database, such as Asia/Shanghai or UTC" $v.lottery.timeZone) -}}
{{- end -}}
{{- $wrong = append $wrong (include "noonlock.wrongLease" (list "lottery.lease" $v.lottery.lease)) -}}
{{- if and $v.verify.since (not (include "lottery.isInstant" $v.verify.since)) -}}
{{- $wrong = append $wrong (printf "verify.since is %q; it must be a duration before now such as 48h, a date such as 2026-11-21, \"2026-11-21 12:00\", 2026-11-21T12:00:00+08:00, now, or empty for the first noon" $v.verify.since) -}}
{{- end -}}
{{- if and $v.verify.until (not (include "lottery.isInstant" $v.verify.until)) -}}
{{- $wrong = append $wrong (printf "verify.until is %q; it must be a duration before now such as 48h, a date such as 2026-11-21, \"2026-11-21 12:00\", 2026-11-21T12:00:00+08:00, or empty for now" $v.verify.until) -}}
{{- end -}}

{{- range $server := list "redis" "database" -}}
{{- $tls := (index $v $server).tls -}}
{{- $without := ternary (list (include "lottery.redis.bundled" $) "the bundled Redis") (list (include "lottery.sqlite" $) "SQLite") (eq $server "redis") -}}
{{- if and (first $without) (include "noonlock.certificates" $tls) -}}
{{- $wrong = append $wrong (printf "%s.tls names certificates; with %s there must be none, because it does not use TLS" $server (last $without)) -}}
{{- end -}}
{{- end -}}

{{- $own := list -}}
{{- range concat (include "lottery.env" . | fromYamlArray) (include "lottery.serveEnv" . | fromYamlArray) }}{{ $own = append $own .name }}{{ end -}}
{{- range $i, $variable := $v.env -}}
{{- if has $variable.name $own -}}
{{- $wrong = append $wrong (printf "env[%d].name is %s, which the chart sets; use its value" $i $variable.name) -}}
{{- end -}}
{{- end -}}
{{- if include "lottery.sqlite" . -}}
{{- if hasKey ($v.affinity | default dict) "podAffinity" -}}
{{- $wrong = append $wrong "affinity.podAffinity is given; with database.sqlite.enabled there must be none, because all pods run on one node" -}}
{{- end -}}
{{- if $v.topologySpreadConstraints -}}
{{- $wrong = append $wrong "topologySpreadConstraints is given; with database.sqlite.enabled there must be none, because all pods run on one node" -}}
{{- end -}}
{{- end -}}

{{- $own := dict "context" . "containers" (list "lottery" "verify") "volumes" (list "entrants" "tmp" "database" "redis-tls" "database-tls")
  "mountPaths" (list "/etc/lottery" "/tmp" "/var/lib/lottery" "/etc/lottery-tls/redis" "/etc/lottery-tls/database")
  "annotations" (list "kubectl.kubernetes.io/default-container" "noonlock/entrants") -}}
{{- include "noonlock.refuse" (concat (include "noonlock.wrong" $own | fromJsonArray) $wrong) -}}
{{- end -}}
