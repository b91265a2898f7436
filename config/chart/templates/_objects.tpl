{{- /* labels: those of every object of the release. */}}
{{- define "labels" -}}
app.kubernetes.io/name: sidecar-termination-operator
app.kubernetes.io/part-of: sidecar-termination-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- /*
objects: the objects of the files that match a pattern, with the labels and in the namespace of the release.
  root         the root context
  pattern      files below files/, which packaging copies from the kustomizations
  without      names of objects to leave out
  annotations  annotations to add
*/}}
{{- define "objects" -}}
{{- $root := .root }}
{{- $without := default list .without }}
{{- $annotations := default dict .annotations }}
{{- $labels := fromYaml (include "labels" $root) }}
{{- $files := $root.Files.Glob (print "files/" .pattern) }}
{{- if not $files }}
{{- fail (printf "the chart has no files/%s: package it with `make chart`" .pattern) }}
{{- end }}
{{- range $path, $content := $files }}
{{- range regexSplit "(?m)^---$" (toString $content) -1 }}
{{- with fromYaml (replace "sidecar-termination-system" $root.Release.Namespace .) }}
{{- range ternary .items (list .) (eq .kind "List") }}
{{- if not (has .metadata.name $without) }}
{{- $_ := set .metadata "labels" (mergeOverwrite (default dict .metadata.labels) $labels) }}
{{- if $annotations }}
{{- $_ := set .metadata "annotations" (mergeOverwrite (default dict .metadata.annotations) $annotations) }}
{{- end }}
---
{{ toYaml . }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
