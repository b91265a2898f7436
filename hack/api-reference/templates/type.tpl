{{- /* Types that are inlined into others are not shown as fields twice. Enum values drop the name of their constant. */ -}}
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

| Field | Description | Default | Limits |
| --- | --- | --- | --- |
{{- with .GVK }}
| `apiVersion` _string_ | `{{ .Group }}/{{ .Version }}` | | |
| `kind` _string_ | `{{ .Kind }}` | | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $limit := .Validation }}{{ if $i }}<br />{{ end }}{{ template "limit" $limit }}{{ end }} |
{{- end }}
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
