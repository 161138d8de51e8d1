{{/*
Apply one operation of JSON Patch (RFC 6902), which values.schema.json has checked. Changes the map that it gets.
Takes (map whose entry `value` is the document, operation, where it is written).
*/}}
{{- define "penstock.patch" }}
{{- $holder := index . 0 }}{{ $operation := index . 1 }}
{{- $op := $operation.op }}
{{- $where := printf "%s: %s %s" (index . 2) $op $operation.path }}
{{- $value := get $operation "value" }}
{{- if has $op (list "move" "copy") }}
{{- $found := dict }}
{{- include "penstock.patchAt" (dict "holder" $holder "keys" (splitList "/" $operation.from | rest) "op" "copy" "value" $found "where" $where) }}
{{- $value = $found.value }}
{{- if eq $op "move" }}
{{- if hasPrefix (printf "%s/" $operation.from) $operation.path }}{{ fail (printf "%s: is inside of %s" $where $operation.from) }}{{ end }}
{{- include "penstock.patchAt" (dict "holder" $holder "keys" (splitList "/" $operation.from | rest) "op" "remove" "value" nil "where" $where) }}
{{- end }}
{{- $op = "add" }}
{{- end }}
{{- include "penstock.patchAt" (dict "holder" $holder "keys" (splitList "/" $operation.path | rest) "op" $op "value" $value "where" $where) }}
{{- end }}

{{/*
Apply an operation below holder.value, at the path `keys`; a holder without `value` stands for a place that does not exist.
`copy` puts a copy of the place into the map `value`.
*/}}
{{- define "penstock.patchAt" }}
{{- $holder := .holder }}{{ $old := get $holder "value" }}
{{- if and (not .keys) (eq .op "add") }}
{{- $_ := set $holder "value" (deepCopy (list .value) | first) }}
{{- else if not (or .keys (hasKey $holder "value")) }}
{{- fail (printf "%s: does not exist" .where) }}
{{- else if not .keys }}
{{- if eq .op "replace" }}{{ $_ := set $holder "value" (deepCopy (list .value) | first) }}{{ end }}
{{- if eq .op "remove" }}{{ $_ := unset $holder "value" }}{{ end }}
{{- if eq .op "copy" }}{{ $_ := set .value "value" (deepCopy (list $old) | first) }}{{ end }}
{{- if and (eq .op "test") (ne (toJson $old) (toJson .value)) }}{{ fail (printf "%s: is %s" .where (toJson $old)) }}{{ end }}
{{- else }}
{{- $key := first .keys | replace "~1" "/" | replace "~0" "~" }}{{ $child := dict }}
{{- $below := dict "holder" $child "keys" (rest .keys) "op" .op "value" .value "where" .where }}
{{- if kindIs "map" $old }}
{{- if hasKey $old $key }}{{ $_ := set $child "value" (get $old $key) }}{{ end }}
{{- include "penstock.patchAt" $below }}
{{- if hasKey $child "value" }}{{ $_ := set $old $key $child.value }}{{ else }}{{ $_ := unset $old $key }}{{ end }}
{{- else if kindIs "slice" $old }}
{{- $inserts := and (eq .op "add") (not (rest .keys)) }}
{{- if and $inserts (eq $key "-") }}{{ $key = len $old | toString }}{{ end }}
{{- if not (and (regexMatch "^(0|[1-9][0-9]{0,8})$" $key) (le (atoi $key) (len $old))) }}{{ fail (printf "%s: no index %s" .where $key) }}{{ end }}
{{- $at := atoi $key }}{{ $after := ternary $at (add1 $at | int) $inserts }}
{{- if and (lt $at (len $old)) (not $inserts) }}{{ $_ := set $child "value" (index $old $at) }}{{ end }}
{{- include "penstock.patchAt" $below }}
{{- $new := hasKey $child "value" | ternary (list $child.value) list }}
{{- $_ := set $holder "value" (concat (slice $old 0 $at) $new (slice $old $after)) }}
{{- else }}
{{- fail (printf "%s: nothing is below a value at %s" .where $key) }}
{{- end }}
{{- end }}
{{- end }}
