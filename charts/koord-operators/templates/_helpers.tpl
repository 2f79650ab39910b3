{{- define "koord.config" -}}
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
{{ toYaml .Values.config }}
{{- end -}}
{{- define "koord.serveConfig" -}}
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
logFormat: json
see: {{- toYaml .Values.serve.see | nindent 2 }}
{{- end -}}
{{- define "koord.answersConfig" -}}
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
logFormat: json
see: {{- toYaml .Values.aggregation.see | nindent 2 }}
{{- end -}}
{{- define "koord.serveStrategy" -}}
{{- /* The process before has to end first, so that the volume comes free. */ -}}
{{- if .Values.serve.volumeClaim -}}
{type: Recreate}
{{- else -}}
{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
{{- end -}}
{{- end -}}
{{- define "koord.pageLinks" -}}
{{- $links := list -}}
{{- with .Values.monitoring.pageUrl -}}
{{- $page := printf "%s/page" (trimSuffix "/" .) -}}
{{- range $title, $path := dict "What waits" "queue" "Quotas" "quotas" "What is not well" "health" -}}
{{- $link := dict "title" $title "type" "link" "url" (printf "%s/%s" $page $path) "targetBlank" true -}}
{{- $links = append $links $link -}}
{{- end -}}
{{- end -}}
{{ toJson $links }}
{{- end -}}
