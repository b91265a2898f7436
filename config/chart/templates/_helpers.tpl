{{- /* The names of templates are global: an umbrella chart shares them with other charts. */}}

{{- /* fullname: the base of the names of objects. The longest suffix is -controller-manager-metrics. */}}
{{- define "sidecar-termination-operator.fullname" -}}
{{- $name := default "sidecar-termination" .Values.nameOverride }}
{{- $release := trimSuffix "-operator" .Release.Name }}
{{- $fullname := ternary $release (printf "%s-%s" .Release.Name $name) (contains $name $release) }}
{{- default $fullname .Values.fullnameOverride | trunc 36 | trimSuffix "-" }}
{{- end }}

{{- /* selector: the labels of the operator's pods that selectors use. */}}
{{- define "sidecar-termination-operator.selector" -}}
app.kubernetes.io/name: sidecar-termination-operator
app.kubernetes.io/component: controller-manager
{{- end }}

{{- /* serviceAccount: the name of the operator's service account. */}}
{{- define "sidecar-termination-operator.serviceAccount" -}}
{{- default (print (include "sidecar-termination-operator.fullname" .) "-controller-manager") .Values.serviceAccount.name }}
{{- end }}

{{- /* labels: the chart's own labels of every object of the release. */}}
{{- define "sidecar-termination-operator.labels" -}}
app.kubernetes.io/name: sidecar-termination-operator
app.kubernetes.io/part-of: sidecar-termination-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- /*
metadata: the metadata of an object of the release.
  root         the root context
  name         suffix of the name
  namespace    empty for the namespace of the release
  labels       more labels
  annotations  more annotations
*/}}
{{- define "sidecar-termination-operator.metadata" -}}
namespace: {{ default .root.Release.Namespace .namespace }}
{{ include "sidecar-termination-operator.clusterMetadata" . }}
{{- end }}

{{- /* clusterMetadata: the metadata of an object without a namespace. */}}
{{- define "sidecar-termination-operator.clusterMetadata" -}}
name: {{ include "sidecar-termination-operator.fullname" .root }}-{{ .name }}
{{ include "sidecar-termination-operator.labelsAndAnnotations" . }}
{{- end }}

{{- /* labelsAndAnnotations: those of an object of the release, by the fields of metadata. */}}
{{- define "sidecar-termination-operator.labelsAndAnnotations" -}}
labels:
  {{- toYaml (mergeOverwrite (deepCopy .root.Values.commonLabels) (default dict .labels) (fromYaml (include "sidecar-termination-operator.labels" .root))) | nindent 2 }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (default dict .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* goMemoryLimit: nine tenths of the memory limit in MiB; empty without a limit. */}}
{{- define "sidecar-termination-operator.goMemoryLimit" -}}
{{- with dig "limits" "memory" "" .Values.resources | default "" | toString }}
{{- $bytes := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- divf (mulf (regexFind "^[0-9.]+" .) (index $bytes (regexFind "[a-zA-Z]*$" .)) 0.9) 1048576 | int64 }}MiB
{{- end }}
{{- end }}

{{- /* metricsAuthenticated: empty if everyone may read the metrics, by plain HTTP. */}}
{{- define "sidecar-termination-operator.metricsAuthenticated" -}}
{{- if eq "Enabled" (default (ternary "Disabled" "Enabled" (not (empty .Values.watchNamespaces))) (index .Values.flags "metrics-authentication")) }}true{{ end }}
{{- end }}

{{- /* outcomeLeftOut: why the release lacks the policy that decides outcomes; empty if it has it, or if it has no object of the cluster. */}}
{{- define "sidecar-termination-operator.outcomeLeftOut" -}}
{{- $way := .Values.admissionPolicies.outcome }}
{{- if .Values.watchNamespaces }}
{{- else if eq $way "Disabled" }}The policy sidecar-termination-outcome is left out, by admissionPolicies.outcome.
{{- else if and (eq $way "Auto") (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) }}The policy sidecar-termination-outcome
{{- " " }}is left out, because it needs Kubernetes 1.36 and this is {{ .Capabilities.KubeVersion.Version }}. Without a cluster, give --kube-version
{{- " " }}or set admissionPolicies.outcome to Enabled.
{{- end }}
{{- end }}

{{- /* mirrored: an image, by the registry of imageRegistry if it is set. */}}
{{- define "sidecar-termination-operator.mirrored" -}}
{{- if and .image .root.Values.imageRegistry }}
{{- trimSuffix "/" .root.Values.imageRegistry }}/{{ regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" .image "" }}
{{- else }}
{{- .image }}
{{- end }}
{{- end }}

{{- /*
image: the operator's image. A release has its digest in the annotations of the chart, and not in the values: an upgrade that reuses
values takes the new image.
*/}}
{{- define "sidecar-termination-operator.image" -}}
{{- $repository := include "sidecar-termination-operator.mirrored" (dict "root" . "image" .Values.image.repository) }}
{{- if .Values.image.digest }}
{{- print $repository "@" .Values.image.digest }}
{{- else if .Values.image.tag }}
{{- print $repository ":" .Values.image.tag }}
{{- else }}
{{- $released := first (fromYamlArray (index .Chart.Annotations "artifacthub.io/images")) }}
{{- print $repository ":" .Chart.AppVersion (regexFind "@.*" $released.image) }}
{{- end }}
{{- end }}

{{- /*
objects: the objects of the files that match a pattern, with the names, labels and namespace of the release.
  root         the root context
  pattern      files below files/, which packaging copies from the kustomizations
  without      names of objects to leave out, after "sidecar-termination-"
  name         suffix of the name, if it is another one
  namespace    namespace, if it is another one
  labels       more labels
  annotations  more annotations
  variables    JSON values of variables of admission policies, by name
*/}}
{{- define "sidecar-termination-operator.objects" -}}
{{- $root := .root }}
{{- $fullname := include "sidecar-termination-operator.fullname" $root }}
{{- $account := include "sidecar-termination-operator.serviceAccount" $root }}
{{- $labels := fromYaml (include "sidecar-termination-operator.labels" $root) }}
{{- /* Names of objects in fields, expressions and messages. */}}
{{- $names := "sidecar-termination-(controller-manager|leader-election-|manager-|marks|metrics-reader|mode-|outcome|operator-limits|operator-requests|phase|pod-finisher|policy-|clusterpolicy-)" }}
{{- $files := $root.Files.Glob (print "files/" .pattern) }}
{{- if not $files }}
{{- fail (printf "the chart has no files/%s: package it with `make dist`" .pattern) }}
{{- end }}
{{- range $path, $content := $files }}
{{- range regexSplit "(?m)^---$" (toString $content) -1 }}
{{- $text := replace "sidecar-termination-system" $root.Release.Namespace . }}
{{- $text = regexReplaceAll $names $text (print $fullname "-${1}") }}
{{- with fromYaml (replace (print $fullname "-controller-manager") $account $text) }}
{{- range ternary .items (list .) (eq .kind "List") }}
{{- if not (has (trimPrefix (print $fullname "-") .metadata.name) (default list $.without)) }}
{{- $metadata := .metadata }}
{{- with $.name }}
{{- $_ := set $metadata "name" (printf "%s-%s" $fullname .) }}
{{- end }}
{{- with $.namespace }}
{{- $_ := set $metadata "namespace" . }}
{{- end }}
{{- $_ := set $metadata "labels" (mergeOverwrite (deepCopy $root.Values.commonLabels) (default dict $.labels) (default dict $metadata.labels) $labels) }}
{{- with mergeOverwrite (deepCopy $root.Values.commonAnnotations) (default dict $metadata.annotations) (default dict $.annotations) }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- range $variable := dig "spec" "variables" list . }}
{{- with get (default dict $.variables) $variable.name }}
{{- if ne . (toJson (mustFromJson $variable.expression)) }}
{{- $_ := set $variable "expression" . }}
{{- end }}
{{- end }}
{{- end }}
---
{{ toYaml . }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
