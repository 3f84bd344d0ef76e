{{/*
Checks that values.schema.json cannot express, or not with a clear message. All errors are
reported together.
*/}}
{{- define "lottery.validate" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}

{{- if not $v.enabled -}}
{{- $wrong = append $wrong "enabled is false; only a parent chart uses it, as the condition of its dependency on this chart" -}}
{{- end -}}
{{- $fullname := include "lottery.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $fullname) -}}
{{- $wrong = append $wrong (printf "the objects would have the name %q; the name of a Service must consist of lower-case letters, digits and dashes, and must begin with a letter: set fullnameOverride" $fullname) -}}
{{- end -}}

{{- $least := add $v.lottery.drainSeconds 15 | int -}}
{{- if lt (int $v.terminationGracePeriodSeconds) $least -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d; it must be at least lottery.drainSeconds + 15, %d, or a pod is killed before it has finished its draw and released it" (int $v.terminationGracePeriodSeconds) $least) -}}
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
{{- $wrong = append $wrong (printf "firstTry is true, and %s; a first try has its own Redis and database: leave out one of the two" (include "lottery.given" .)) -}}
{{- end -}}
{{- else if not (or $redis $database) -}}
{{- $wrong = append $wrong "neither Redis nor a database is given; an installation needs one of redis.url, redis.existingSecret and redis.enabled, and one of database.url, database.existingSecret and database.sqlite.enabled, or only firstTry=true for a first try" -}}
{{- else -}}
{{- if ne (len $redis) 1 -}}
{{- $wrong = append $wrong (printf "of redis.url, redis.existingSecret and redis.enabled, %s; there must be exactly one" (include "lottery.given" $redis)) -}}
{{- end -}}
{{- if ne (len $database) 1 -}}
{{- $wrong = append $wrong (printf "of database.url, database.existingSecret and database.sqlite.enabled, %s; there must be exactly one" (include "lottery.given" $database)) -}}
{{- end -}}
{{- end -}}

{{- if $v.redis.url -}}
{{- if include "lottery.hasPassword" $v.redis.url -}}
{{- $wrong = append $wrong "redis.url contains a user or a password; these must be in redis.auth" -}}
{{- else if not (regexMatch "^rediss?(\\+sentinel|\\+cluster)?://[^/?#]" $v.redis.url) -}}
{{- $wrong = append $wrong (printf "redis.url is %q; it must begin with redis://, redis+sentinel:// or redis+cluster://, or with rediss in place of redis, and name a host" $v.redis.url) -}}
{{- else if and (regexMatch "^rediss?\\+sentinel:" $v.redis.url) (not (regexMatch "[?&]master=[^&]" $v.redis.url)) -}}
{{- $wrong = append $wrong (printf "redis.url is %q; with Sentinel it must have the parameter master" $v.redis.url) -}}
{{- end -}}
{{- if and (include "lottery.certificates" $v.redis.tls) (not (hasPrefix "rediss" $v.redis.url)) -}}
{{- $wrong = append $wrong "redis.tls names certificates; then redis.url must begin with rediss" -}}
{{- end -}}
{{- if and $v.redis.auth.sentinelPasswordKey (not (regexMatch "^rediss?\\+sentinel:" $v.redis.url)) -}}
{{- $wrong = append $wrong "redis.auth.sentinelPasswordKey is given; then redis.url must begin with redis+sentinel or rediss+sentinel" -}}
{{- end -}}
{{- else if $v.redis.auth.existingSecret -}}
{{- $wrong = append $wrong "redis.auth.existingSecret is given; it is only for redis.url" -}}
{{- end -}}
{{- if and $v.redis.auth.username (not (and $v.redis.auth.existingSecret $v.redis.auth.passwordKey)) -}}
{{- $wrong = append $wrong "redis.auth.username is given; then redis.auth.existingSecret and redis.auth.passwordKey must name its password" -}}
{{- end -}}
{{- if and $v.redis.auth.sentinelPasswordKey (not $v.redis.auth.existingSecret) -}}
{{- $wrong = append $wrong "redis.auth.sentinelPasswordKey is given; then redis.auth.existingSecret must be, too" -}}
{{- end -}}
{{- if $v.database.url -}}
{{- if include "lottery.hasPassword" (regexReplaceAll "://[^:@/?]*@" $v.database.url "://") -}}
{{- $wrong = append $wrong "database.url contains a password; it must be in database.auth.existingSecret" -}}
{{- else if not (regexMatch "^(mysql|postgres|postgresql)://[^:@/?#]+@[^/?#]+/[^/?#]+" $v.database.url) -}}
{{- $wrong = append $wrong (printf "database.url is %q; it must be mysql://user@host/database or postgres://user@host/database" $v.database.url) -}}
{{- end -}}
{{- else if $v.database.auth.existingSecret -}}
{{- $wrong = append $wrong "database.auth.existingSecret is given; it is only for database.url" -}}
{{- end -}}

{{- $entrants := list -}}
{{- range $name := list "inline" "configMap" "claim" -}}
{{- if index $v.entrants $name }}{{ $entrants = append $entrants (printf "entrants.%s" $name) }}{{ end -}}
{{- end -}}
{{- if and (ne (len $entrants) 1) (not (and $v.firstTry (not $entrants))) -}}
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
{{- $lease := include "lottery.nanoseconds" $v.lottery.lease | int64 -}}
{{- if or (lt $lease 100000000) (gt $lease 86400000000000) (mod $lease 1000000) -}}
{{- $wrong = append $wrong (printf "lottery.lease is %q; it must be a duration in whole milliseconds from 100ms to 24h, such as 10s" $v.lottery.lease) -}}
{{- end -}}
{{- with $v.monitoring.serviceMonitor -}}
{{- if not (include "lottery.isPrometheusDuration" .interval) -}}
{{- $wrong = append $wrong (printf "monitoring.serviceMonitor.interval is %q; it must be a duration such as 30s or 1m30s" .interval) -}}
{{- end -}}
{{- if and .scrapeTimeout (not (include "lottery.isPrometheusDuration" .scrapeTimeout)) -}}
{{- $wrong = append $wrong (printf "monitoring.serviceMonitor.scrapeTimeout is %q; it must be a duration such as 10s, or empty for that of Prometheus" .scrapeTimeout) -}}
{{- else if gt (include "lottery.nanoseconds" .scrapeTimeout | int64) (include "lottery.nanoseconds" .interval | int64) -}}
{{- $wrong = append $wrong (printf "monitoring.serviceMonitor.scrapeTimeout is %q; it must be at most the interval, %s" .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.dnsPolicy "None") (not (dig "nameservers" list ($v.dnsConfig | default dict))) -}}
{{- $wrong = append $wrong "dnsPolicy is None; then dnsConfig.nameservers must name a server" -}}
{{- end -}}
{{- if and $v.verify.since (not (include "lottery.isInstant" $v.verify.since)) -}}
{{- $wrong = append $wrong (printf "verify.since is %q; it must be a duration before now such as 48h, a date such as 2026-11-21, \"2026-11-21 12:00\", 2026-11-21T12:00:00+08:00, now, or empty for the first noon" $v.verify.since) -}}
{{- end -}}
{{- if and $v.verify.until (not (include "lottery.isInstant" $v.verify.until)) -}}
{{- $wrong = append $wrong (printf "verify.until is %q; it must be a duration before now such as 48h, a date such as 2026-11-21, \"2026-11-21 12:00\", 2026-11-21T12:00:00+08:00, or empty for now" $v.verify.until) -}}
{{- end -}}

{{- range $server := list "redis" "database" -}}
{{- $tls := (index $v $server).tls -}}
{{- if and $tls.ca.existingSecret $tls.ca.configMap -}}
{{- $wrong = append $wrong (printf "of %s.tls.ca.existingSecret and %s.tls.ca.configMap, both are given; there must be at most one" $server $server) -}}
{{- end -}}
{{- $without := ternary (list (include "lottery.redis.bundled" $) "the bundled Redis") (list (include "lottery.sqlite" $) "SQLite") (eq $server "redis") -}}
{{- if and (first $without) (include "lottery.certificates" $tls) -}}
{{- $wrong = append $wrong (printf "%s.tls names certificates; with %s there must be none, because it does not use TLS" $server (last $without)) -}}
{{- end -}}
{{- end -}}

{{/* A duplicate key is invalid YAML, and users must not change these keys. */}}
{{- range $key := list "kubectl.kubernetes.io/default-container" "noonlock/entrants" -}}
{{- if hasKey ($v.podAnnotations | default dict) $key -}}
{{- $wrong = append $wrong (printf "podAnnotations has %s, which is the chart's own; leave it out" $key) -}}
{{- end -}}
{{- end -}}
{{- $own := list "helm.sh/chart" -}}
{{- range $key := list "name" "instance" "component" "version" "managed-by" }}{{ $own = append $own (printf "app.kubernetes.io/%s" $key) }}{{ end -}}
{{- $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels -}}
{{- range $name, $part := $v.monitoring }}{{ $labels = set $labels (printf "monitoring.%s.labels" $name) $part.labels }}{{ end -}}
{{- range $where, $of := $labels -}}
{{- range $key, $_ := $of -}}
{{- if has $key $own -}}
{{- $wrong = append $wrong (printf "%s has %s, which is the chart's own; leave it out" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $own := list -}}
{{- range concat (include "lottery.env" . | fromYamlArray) (include "lottery.serveEnv" . | fromYamlArray) }}{{ $own = append $own .name }}{{ end -}}
{{- range $i, $variable := $v.env -}}
{{- if has $variable.name $own -}}
{{- $wrong = append $wrong (printf "env[%d].name is %s, which the chart sets; use its value" $i $variable.name) -}}
{{- end -}}
{{- end -}}
{{- range $where := list "initContainers" "extraContainers" -}}
{{- range $i, $container := index $v $where -}}
{{- if has $container.name (list "lottery" "verify") -}}
{{- $wrong = append $wrong (printf "%s[%d].name is %q, which is the chart's own; use another name" $where $i $container.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $volume := $v.extraVolumes -}}
{{- if has $volume.name (list "entrants" "tmp" "database" "redis-tls" "database-tls") -}}
{{- $wrong = append $wrong (printf "extraVolumes[%d].name is %q, which is the chart's own; use another name" $i $volume.name) -}}
{{- end -}}
{{- end -}}
{{- range $i, $mount := $v.extraVolumeMounts -}}
{{- if has (clean $mount.mountPath) (list "/etc/lottery" "/tmp" "/var/lib/lottery" "/etc/lottery-tls/redis" "/etc/lottery-tls/database") -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts[%d].mountPath is %q, which is the chart's own; use another path" $i $mount.mountPath) -}}
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

{{- if $wrong -}}
{{- fail (printf "\n\nThese values are refused:\n  * %s\n" (join "\n  * " $wrong)) -}}
{{- end -}}
{{- end -}}

{{- define "lottery.given" -}}
{{- if . -}}{{ join " and " . }} {{ if eq (len .) 1 }}is{{ else }}are{{ end }} given{{- else -}}none is given{{- end -}}
{{- end -}}
