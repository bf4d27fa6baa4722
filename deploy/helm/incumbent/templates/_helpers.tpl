{{- define "incumbent.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "incumbent.election" -}}
{{- .Values.election.name | default (include "incumbent.fullname" .) -}}
{{- end }}

{{- define "incumbent.selectorLabels" -}}
{{- with .Values.selectorLabels -}}
{{- toYaml . -}}
{{- else -}}
{{- toYaml (dict "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name) -}}
{{- end -}}
{{- end }}

{{- /* Empty without standardLabels and commonLabels. */ -}}
{{- define "incumbent.labels" -}}
{{- $labels := dict -}}
{{- if .Values.standardLabels -}}
{{- $chart := printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") -}}
{{- $labels = dict
      "helm.sh/chart" $chart
      "app.kubernetes.io/name" .Chart.Name
      "app.kubernetes.io/instance" .Release.Name
      "app.kubernetes.io/version" .Chart.AppVersion
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- end -}}
{{- with merge (dict) .Values.commonLabels $labels -}}
{{- toYaml . -}}
{{- end -}}
{{- end }}

{{- /* The name, and the labels if there are any: {{ include "incumbent.metadata" (list . "name") | nindent 2 }} */ -}}
{{- define "incumbent.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 | toYaml }}
{{- with include "incumbent.labels" $root }}
labels:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "incumbent.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "incumbent.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "incumbent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Not empty if the lock, or one of several, is Kubernetes. The Role is for the namespace of the release. */ -}}
{{- define "incumbent.onKubernetes" -}}
{{- if eq .Values.mode "life" -}}
life
{{- else if not .Values.lock.urlSecret.name -}}
{{- with regexFind "(^|\\s)(?i:memory|peer|sqlite):" .Values.lock.url | trim | trimSuffix ":" -}}
{{- fail (printf "lock.url: with %s, pods of a Deployment would lead beside each other: use kubernetes, or the lock of a server" .) -}}
{{- end -}}
{{- range splitList " " .Values.lock.url -}}
{{- if regexMatch "^kubernetes([:?]|$)" . -}}
{{- $namespace := regexFind "^kubernetes:[^?/]+" . | trimPrefix "kubernetes:" -}}
{{- if and $namespace (ne $namespace $.Release.Namespace) $.Values.rbac.create -}}
{{- fail (printf "lock.url names the namespace %s, and the Role is made in %s: install there, or set rbac.create and lock.createLease to false and make a Role there" $namespace $.Release.Namespace) -}}
{{- end -}}
{{- $election := include "incumbent.election" $ -}}
{{- $object := regexFind "[?&]object=[^&]*" . | regexFind "[^=]*$" | default $election -}}
{{- $kind := regexMatch "[?&]kind=(configmap|endpoints)" . -}}
{{- if and $.Values.rbac.create (or $kind (ne $object $election)) -}}
{{- fail "lock.url: the Role is for the Lease election.name: leave out kind and object, or set rbac.create and lock.createLease to false and make a Role" -}}
{{- end -}}
lease
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The arguments that select the lock, of a candidate, the sentinel and the test. */ -}}
{{- define "incumbent.lockArgs" -}}
{{- if not .Values.lock.urlSecret.name }}
- --lock
- {{ .Values.lock.url | quote }}
{{- end }}
{{- with .Values.lock.nats.bucket }}
- --bucket
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Not empty if something follows the leader. */ -}}
{{- define "incumbent.traffic" -}}
{{- if ne .Values.mode "life" -}}
{{- with .Values.traffic -}}
{{- with or .service.name .leaderLabel .podDeletionCost -}}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "incumbent.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with .Values.lock.urlSecret }}
{{- if .name }}
- name: INCUMBENT_LOCK
  valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- with .Values.lock.nats }}
{{- if .server }}
- {name: NATS_URL, value: {{ .server | quote }}}
{{- end }}
{{- if .credsSecret.name }}
- {name: NATS_CREDS, value: /etc/incumbent/nats/creds}
{{- end }}
{{- end }}
{{- end }}

{{- define "incumbent.lockMounts" -}}
{{- if .Values.lock.nats.credsSecret.name }}
- {name: nats-creds, mountPath: /etc/incumbent/nats, readOnly: true}
{{- end }}
{{- end }}

{{- define "incumbent.lockVolumes" -}}
{{- with .Values.lock.nats.credsSecret }}
{{- if .name }}
- name: nats-creds
  secret:
    secretName: {{ .name | quote }}
    items:
      - {key: {{ .key | quote }}, path: creds}
{{- end }}
{{- end }}
{{- end }}

{{- define "incumbent.candidateArgs" -}}
- {{ .Values.mode }}
- {{ include "incumbent.election" . | quote }}
{{- if ne .Values.mode "life" }}
{{- with include "incumbent.lockArgs" . | trim }}
{{ . }}
{{- end }}
- --http
- "0.0.0.0:{{ .Values.http.port }}"
{{- with .Values.election.lease }}
- --lease
- {{ . | quote }}
{{- end }}
{{- with .Values.traffic.service.name }}
- --service
- {{ . | quote }}
{{- end }}
{{- with .Values.traffic.leaderLabel }}
- --leader-label
- {{ . | quote }}
{{- end }}
{{- with .Values.traffic.podDeletionCost }}
- --pod-deletion-cost
- {{ . | int64 | quote }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- if ne .Values.mode "campaign" }}
- --
{{- range concat .Values.app.command .Values.app.args }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "incumbent.probes" -}}
ports:
  - {name: http, containerPort: {{ .Values.http.port }}}
# A standby is ready; /leader has the leader.
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
# Alive while the lock's server is away, too: restarting every pod fixes nothing.
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  failureThreshold: 6
{{- end }}

{{- /* The container of incumbent: below run and life with your command, else alone in its image. */ -}}
{{- define "incumbent.candidate" -}}
name: candidate
{{- if eq .Values.mode "campaign" }}
image: {{ include "incumbent.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
{{- else }}
image: {{ .Values.app.image | quote }}
imagePullPolicy: {{ .Values.app.pullPolicy }}
command:
  - {{ .Values.image.mount | ternary "/opt/incumbent/incumbent" "incumbent" }}
{{- end }}
  {{- include "incumbent.candidateArgs" . | nindent 2 }}
env:
  {{- include "incumbent.env" . | nindent 2 }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne .Values.mode "life" }}
{{ include "incumbent.probes" . }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- $mounts := include "incumbent.lockMounts" . }}
{{- if and .Values.image.mount (ne .Values.mode "campaign") }}
{{- $mounts = printf "%s\n- {name: incumbent, mountPath: /opt/incumbent, readOnly: true}" $mounts }}
{{- end }}
{{- with .Values.volumeMounts }}
{{- $mounts = printf "%s\n%s" $mounts (toYaml .) }}
{{- end }}
{{- with $mounts | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The container of yours: beside a campaign, or the program that uses the library. */ -}}
{{- define "incumbent.app" -}}
{{- $takesPart := eq .Values.mode "library" -}}
name: app
image: {{ .Values.app.image | quote }}
imagePullPolicy: {{ .Values.app.pullPolicy }}
{{- with .Values.app }}
{{- with .command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .args }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- $env := "" }}
{{- if .Values.sentinel.enabled }}
{{- $env = "- {name: INCUMBENT_SENTINEL, value: /run/incumbent/sentinel/socket}" }}
{{- end }}
{{- if $takesPart }}
{{- $env = printf "%s\n%s" $env (include "incumbent.env" .) }}
{{- end }}
{{- with .Values.env }}
{{- $env = printf "%s\n%s" $env (toYaml .) }}
{{- end }}
{{- with $env | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "ports" "startupProbe" "readinessProbe" "livenessProbe" "resources" }}
{{- with index $.Values.app $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- $mounts := "" }}
{{- if .Values.sentinel.enabled }}
{{- $mounts = "- {name: sentinel, mountPath: /run/incumbent, readOnly: true}" }}
{{- end }}
{{- if $takesPart }}
{{- $mounts = printf "%s%s" $mounts (include "incumbent.lockMounts" .) }}
{{- end }}
{{- with .Values.volumeMounts }}
{{- $mounts = printf "%s\n%s" $mounts (toYaml .) }}
{{- end }}
{{- with $mounts | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A sidecar: it starts before the program, and outlives it. */ -}}
{{- define "incumbent.sentinel" -}}
name: sentinel
restartPolicy: Always # a sidecar
image: {{ include "incumbent.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - sentinel
  {{- with include "incumbent.lockArgs" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  - --listen
  - /run/incumbent/sentinel/socket
env:
  {{- include "incumbent.env" . | nindent 2 }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.sentinel.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: sentinel, mountPath: /run/incumbent}
  {{- with include "incumbent.lockMounts" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
