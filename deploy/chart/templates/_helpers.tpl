{{/* The release's name, with the chart's where that is not in it. */}}
{{- define "bursar.name" -}}
{{- if contains "bursar" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-bursar" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "bursar.selector" -}}
app.kubernetes.io/name: bursar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bursar.labels" -}}
{{ include "bursar.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* By the Service, or by the leader's own address. */}}
{{- define "bursar.reach" -}}
{{- .Values.webhook.reach | default (eq .Values.store.kind "etcd" | ternary "podAddress" "service") }}
{{- end }}

{{- define "bursar.replicas" -}}
{{- .Values.replicas | default (eq .Values.store.kind "etcd" | ternary 3 1) }}
{{- end }}

{{/* The kinds of each family, which of them it fills in, what they keep, and what decides what they mean. A test compares this with what the program keeps. */}}
{{- define "bursar.families" -}}
capsule:
  group: capsule.clastix.io
  own: [customquotas, globalcustomquotas, resourcepools, resourcepoolclaims]
  filledIn: [resourcepools, resourcepoolclaims]
  kept: [resourcequotas]
  meaning:
    - {group: "", resource: nodes}
    - {group: apiextensions.k8s.io, resource: customresourcedefinitions}
kubernetes:
  group: quota.openshift.io
  own: [clusterresourcequotas]
  meaning:
    - {group: resource.k8s.io, resource: deviceclasses}
{{- end }}
