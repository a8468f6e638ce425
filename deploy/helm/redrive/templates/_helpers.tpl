{{/* The name of all objects of this release. */}}
{{- define "redrive.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected. They never change. Takes a dict of root and part. */}}
{{- define "redrive.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* All labels. Takes a dict of root and part. */}}
{{- define "redrive.labels" -}}
{{ include "redrive.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "redrive.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ required "image.tag: set the tag or the digest of your image" .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "redrive.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "redrive.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* The address of the ledger. The password is in PGPASSWORD. Takes a dict of root and account. */}}
{{- define "redrive.ledgerAddress" -}}
{{- $ledger := .root.Values.ledger -}}
{{- $host := $ledger.host -}}
{{- if not (contains ":" $host) -}}{{- $host = printf "%s:%d" $host (int $ledger.port) -}}{{- end -}}
postgresql://{{ .account.user | urlquery | replace "+" "%20" }}@{{ $host }}/{{ $ledger.database }}{{ with $ledger.parameters }}?{{ . }}{{ end }}
{{- end -}}

{{/* Variables for the ledger. Takes a dict of root and account. */}}
{{- define "redrive.ledgerEnv" -}}
- name: REDRIVE_LEDGER
  value: {{ include "redrive.ledgerAddress" . | quote }}
- name: PGPASSWORD
  valueFrom: { secretKeyRef: { name: {{ .root.Values.ledger.existingSecret | quote }}, key: {{ .account.passwordKey | quote }} } }
{{- end -}}

{{/* What every pod has. */}}
{{- define "redrive.podSecurity" -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAsUser }}
  runAsUser: {{ int . }}
  runAsGroup: {{ int . }}
  fsGroup: {{ int . }}
  {{- end }}
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What every container has. */}}
{{- define "redrive.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{/* Where the pods of a part run. Takes the values of the part. */}}
{{- define "redrive.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod that imports the app. */}}
{{- define "redrive.volumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "redrive.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Variables of a container that imports the app. Takes a dict of root and account. */}}
{{- define "redrive.appEnv" -}}
- name: REDRIVE_APP
  value: {{ .root.Values.app | quote }}
{{ include "redrive.ledgerEnv" . }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A variable from a key of a secret. Takes a list: name, secret, key. */}}
{{- define "redrive.secretEnv" -}}
{{- $name := index . 0 -}}{{- $secret := index . 1 -}}{{- $key := index . 2 -}}
{{- if $key }}
- name: {{ $name }}
  valueFrom: { secretKeyRef: { name: {{ $secret | quote }}, key: {{ $key | quote }} } }
{{- end }}
{{- end -}}
