{{- /* Fields that several types have in common are shown once, in SidecarTerminationPolicySpec. Enum values drop the name of their
constant. */ -}}
{{- define "type" -}}
{{- if markdownShouldRenderType . }}
### {{ .Name }}

{{ .Doc }}
{{- with index .Markers "kubebuilder:validation:XValidation" }}

Rules:
{{ range . }}
- {{ .Message }}
{{- end }}
{{- end }}
{{- if has .Name (list "PolicySpec" "TerminationSettings") }}

Its fields are part of:
{{ range .SortedReferences }}{{ if ne .Name "PolicySpec" }}
- {{ markdownRenderTypeLink . }}
{{- end }}{{ end }}
{{- else if .Members }}
{{- $own := dict "ClusterSidecarTerminationPolicySpec" "namespaceSelector" "Sidecar" "name" }}
{{- $only := get $own .Name }}
{{- if $only }}

Besides `{{ $only }}` it has {{ if eq .Name "Sidecar" }}the fields of [TerminationSettings](#terminationsettings), as in{{ else }}all fields of{{ end }}
[SidecarTerminationPolicySpec](#sidecarterminationpolicyspec).
{{- end }}

| Field | Description | Default | Limits |
| --- | --- | --- | --- |
{{- with .GVK }}
| `apiVersion` _string_ | `{{ .Group }}/{{ .Version }}` | | |
| `kind` _string_ | `{{ .Kind }}` | | |
{{- end }}
{{- range .Members }}{{ if or (not $only) (eq $only .Name) }}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $limit := .Validation }}{{ if $i }}<br />{{ end }}{{ template "limit" $limit }}{{ end }} |
{{- end }}{{ end }}
{{- else if .EnumValues }}

| Value | Meaning |
| --- | --- |
{{- range .EnumValues }}
| `{{ .Name }}` | {{ regexReplaceAll "^[A-Z]\\w+ " (trim .Doc) "" | replace "\n" " " | markdownRenderFieldDoc }} |
{{- end }}
{{- else if .Validation }}

Limits:
{{ range .Validation }}
- {{ template "limit" . }}
{{- end }}
{{- end }}
{{ end -}}
{{- end -}}
