{{- define "pixprep.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "pixprep.selector" -}}
app.kubernetes.io/name: pixprep
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pixprep.labels" -}}
{{ include "pixprep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "pixprep.image" -}}
{{ required "image.repository: the name of the image that you built from deploy/Dockerfile" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* Size of /dev/shm in MiB. */ -}}
{{- define "pixprep.shm" -}}
{{- with .Values.sharedMemory -}}
{{- $batch := add .requestMiB (div (add (mul .images .tensorKiB) 1023) 1024) -}}
{{- add (mul 2 .instances $batch) 64 -}}
{{- end -}}
{{- end -}}

{{- define "pixprep.pending" -}}
sum by (namespace, pod) (nv_inference_pending_request_count{namespace="{{ .Release.Namespace }}", pod=~"{{ include "pixprep.name" . }}-.*"})
{{- end -}}

{{- /* Whether init or the plan writes the models, instead of the image containing them. */ -}}
{{- define "pixprep.writesModels" -}}
{{- if or .Values.models.init .Values.plan.enabled }}yes{{ end -}}
{{- end -}}

{{- define "pixprep.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
