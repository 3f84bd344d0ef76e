{{/*
The forms of values, for _validate.tpl. A template named is… returns text if the value has
the form, and nothing otherwise.
*/}}

{{/* The length of a duration, parsed as in the program; 0 if it is invalid. */}}
{{- define "lottery.nanoseconds" -}}
{{- $start := toDate "2006-01-02" "1970-01-01" -}}
{{- sub (dateModify . $start).UnixNano $start.UnixNano -}}
{{- end -}}

{{/* An instant, or a duration before now, parsed as in the program. */}}
{{- define "lottery.isInstant" -}}
{{- if or (eq . "now") (gt (include "lottery.nanoseconds" . | int64) 0) -}}yes{{- end -}}
{{- range $layout := list "2006-01-02T15:04:05.999999999Z07:00" "2006-01-02 15:04:05" "2006-01-02 15:04" "2006-01-02" -}}
{{- if not (toDate $layout $).IsZero -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of an object of Kubernetes. */}}
{{- define "lottery.isName" -}}
{{- if and (le (len .) 253) (regexMatch "^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" .) -}}yes{{- end -}}
{{- end -}}

{{/* A key of a ConfigMap or a Secret. */}}
{{- define "lottery.isKey" -}}
{{- if and (le (len .) 253) (regexMatch "^[A-Za-z0-9._-]+$" .) (ne . ".") (not (hasPrefix ".." .)) -}}yes{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes that is not negative. */}}
{{- define "lottery.isQuantity" -}}
{{- if regexMatch "^\\+?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([num]|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$" . -}}yes{{- end -}}
{{- end -}}

{{/* The name of an image: only the first part, the registry, may have a colon, before its port. */}}
{{- define "lottery.isRepository" -}}
{{- $registry := "([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\\[[0-9A-Fa-f:]+\\])(:[0-9]{1,5})?" -}}
{{- $part := "[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*" -}}
{{- if regexMatch (printf "^(%s/)?%s(/%s)*$" $registry $part $part) . -}}yes{{- end -}}
{{- end -}}

{{/*
The fault of a schedule. Only the program checks whether its dates exist, unlike those of
"0 0 30 2 *".
*/}}
{{- define "lottery.scheduleFault" -}}
{{- $fields := regexSplit "\\s+" (trim .) -1 -}}
{{- $every := "" -}}
{{- if and (eq (first $fields) "@every") (eq (len $fields) 2) }}{{ $every = last $fields }}{{ end -}}
{{- if gt (len .) 1024 -}}
it must be no longer than 1024 bytes
{{- else if $every -}}
{{- $interval := include "lottery.nanoseconds" $every | int64 -}}
{{- if or (lt $interval 100000000) (mod $interval 1000000) -}}
the interval must be a duration in whole milliseconds, 100ms or more, such as 90s
{{- end -}}
{{- else if regexMatch "^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$" (join " " $fields) -}}
{{- else if or (hasPrefix "@" (first $fields)) (ne (len $fields) 5) -}}
it must be a cron expression of five fields, @daily and the like, or @every DURATION
{{- else -}}
{{- $of := list
  (dict "name" "minute" "min" 0 "max" 59 "names" list)
  (dict "name" "hour" "min" 0 "max" 23 "names" list)
  (dict "name" "day of month" "min" 1 "max" 31 "names" list)
  (dict "name" "month" "min" 1 "max" 12 "names" (list "JAN" "FEB" "MAR" "APR" "MAY" "JUN" "JUL" "AUG" "SEP" "OCT" "NOV" "DEC"))
  (dict "name" "day of week" "min" 0 "max" 7 "names" (list "SUN" "MON" "TUE" "WED" "THU" "FRI" "SAT")) -}}
{{- $faults := list -}}
{{- range $i, $text := $fields -}}
{{- $field := index $of $i -}}
{{- if include "lottery.isNoField" (list $text $field) -}}
{{- $faults = append $faults (printf "its %s is %q, but must be *, numbers from %d to %d%s, ranges a-b, steps */n or a-b/n within them, or a list of these with commas" $field.name $text $field.min $field.max (ternary (printf ", names such as %s" (last $field.names)) "" (gt (len $field.names) 0))) -}}
{{- end -}}
{{- end -}}
{{- join "; " $faults -}}
{{- end -}}
{{- end -}}

{{/* Whether a field of a cron expression is invalid. Takes (list text field). */}}
{{- define "lottery.isNoField" -}}
{{- $field := index . 1 -}}
{{- range $item := splitList "," (index . 0) -}}
{{- $stepped := splitList "/" $item -}}
{{- $ends := splitList "-" (first $stepped) -}}
{{- if eq (first $stepped) "*" }}{{ $ends = list (toString $field.min) (toString $field.max) }}{{ end -}}
{{- $from := include "lottery.fieldValue" (list (first $ends) $field) -}}
{{- $to := include "lottery.fieldValue" (list (last $ends) $field) -}}
{{- if or (not $from) (not $to) (gt (len $ends) 2) (gt (len $stepped) 2) -}}yes
{{- else -}}
{{- $from = atoi $from -}}
{{- $to = atoi $to -}}
{{- /* Sunday as the end of a range is 7. */ -}}
{{- if and (gt $from $to) (eq (upper (last $ends)) "SUN") }}{{ $to = 7 }}{{ end -}}
{{- if gt $from $to -}}yes{{- end -}}
{{- if eq (len $stepped) 2 -}}
{{- $step := last $stepped -}}
{{- if or (eq (len $ends) 1) (not (regexMatch "^0*[1-9][0-9]?$" $step)) -}}yes
{{- else if gt (atoi $step) (max 1 (sub $to $from) | int) -}}yes
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The value of a number or a name, or nothing. Takes (list text field). */}}
{{- define "lottery.fieldValue" -}}
{{- $text := upper (index . 0) -}}
{{- $field := index . 1 -}}
{{- if regexMatch "^[0-9]{1,9}$" $text -}}
{{- $n := atoi $text -}}
{{- if and (ge $n $field.min) (le $n $field.max) }}{{ $n }}{{ end -}}
{{- else -}}
{{- range $i, $name := $field.names -}}
{{- if eq $text $name }}{{ add $i $field.min }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a URL contains a user or a password. It must not be shown then. */}}
{{- define "lottery.hasPassword" -}}
{{- if or (contains "@" .) (regexMatch "[?&]([a-z_]*password|sentinel_username)=" .) -}}yes{{- end -}}
{{- end -}}
