{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
Kubernetes' own object metadata.
{{- else -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " }}
{{- end -}}
{{- end -}}

{{- define "limit" -}}
{{- /* Long numbers come as powers of ten, and a marker without a value as an empty struct. */ -}}
{{- . | replace "1e+06" "1000000" | replace ": {}" "" | replace "|" "\\|" -}}
{{- end -}}
