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
