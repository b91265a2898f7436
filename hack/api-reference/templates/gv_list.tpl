{{- define "gvList" -}}
<!-- Generated from the doc comments in api/ by `make generate`. Changes made here are lost. -->

# API reference
{{ range . }}{{ template "gvDetails" . }}{{ end }}
{{- end -}}
