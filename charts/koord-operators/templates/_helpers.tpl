{{- define "koord.config" -}}
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
{{ toYaml .Values.config }}
{{- end -}}
