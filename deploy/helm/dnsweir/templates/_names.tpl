{{- define "dnsweir.labels" -}}
app.kubernetes.io/name: dnsweir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The cluster's DNS, as values of the configuration. With local-redirect, the proxies ask it by the release's own service. */ -}}
{{- define "dnsweir.clusterDNS" -}}
{{- if eq .Values.mode "local-redirect" }}(env){{ printf "%s_UPSTREAM_SERVICE_HOST" .Release.Name | upper | replace "-" "_" | quote }}
{{- else if .Values.clusterDNS }}{{ range $at, $address := .Values.clusterDNS }}{{ if $at }} {{ end }}{{ quote $address }}{{ end }}
{{- else }}(env)"KUBE_DNS_SERVICE_HOST"{{ end }}
{{- end }}

{{- define "dnsweir.localAddress" -}}
{{- range $at, $address := .Values.localAddress }}{{ if $at }} {{ end }}{{ quote $address }}{{ end }}
{{- end }}

{{- /* Words as values of the configuration. */ -}}
{{- define "dnsweir.words" }}{{ range . }} {{ quote . }}{{ end }}{{ end }}

{{- define "dnsweir.configuration" -}}
{{- $cluster := include "dnsweir.clusterDNS" . -}}
{{- $mode := .Values.mode -}}
listen {{ if eq $mode "cluster-address" }}{{ $cluster }}{{ else if eq $mode "local-redirect" }}"0.0.0.0" "::"{{ else }}{{ include "dnsweir.localAddress" . }}{{ end }}
admin {{ include "dnsweir.admin" . | quote }}
{{- /* Others can reach an address that is not on loopback, so it serves only health and metrics. */ -}}
{{- if not (include "dnsweir.isLoopback" (include "dnsweir.admin" .)) }} status=#false{{ end }}

zone "." {
    {{- if .Values.serviceEntries.enabled }}
    service-entries {
        {{- with .Values.serviceEntries.namespaces }}
        namespaces{{ include "dnsweir.words" . }}
        {{- end }}
        {{- with .Values.serviceEntries.range }}
        range{{ include "dnsweir.words" . }}
        {{- end }}
    }
    {{- end }}
    {{- range .Values.use }}
    use {{ quote . }}
    {{- end }}
    cache { serve-stale "1h" }
    forward{{ if .Values.upstreams }}{{ include "dnsweir.words" .Values.upstreams }}{{ else }} {{ $cluster }}{{ end }}
}
{{- if .Values.upstreams }}

zone {{ quote .Values.clusterDomain }} "in-addr.arpa" "ip6.arpa" {
    {{- range .Values.use }}
    use {{ quote . }}
    {{- end }}
    cache { serve-stale "1h" }
    forward {{ $cluster }}
}
{{- end }}
{{- range .Values.zones }}

zone{{ include "dnsweir.words" .names }} {
    {{- range .use }}
    use {{ quote . }}
    {{- end }}
    cache { serve-stale "1h" }
    forward{{ include "dnsweir.words" .upstreams }}
}
{{- end }}
{{- with .Values.multicluster }}
{{- if .domains }}

zone{{ include "dnsweir.words" .domains }} {
    {{- range $.Values.use }}
    use {{ quote . }}
    {{- end }}
    kubernetes { domain {{ quote $.Values.clusterDomain }}; multicluster{{ include "dnsweir.words" .domains }}; memory {{ quote .memory }} }
}
{{- end }}
{{- end }}
{{- if ne $mode "local-redirect" }}

node {
    interface "nodelocaldns-dw"
    {{- if ne $mode "no-kube-proxy" }}
    iptables
    {{- if eq $mode "ipvs" }}
    mode "link-local"
    {{- end }}
    cluster-dns {{ $cluster }}
    {{- end }}
    {{- if and (has $mode (list "link-local" "ipvs")) (not .Values.teardown) }}
    skip-teardown
    {{- end }}
}
{{- end }}
{{- if .Values.pods.enabled }}

pods { node (env)"NODE_NAME" }
{{- end }}
{{- with .Values.extraConfig }}

{{ . }}
{{- end }}
{{- end }}

{{- /* What the configuration reads of the Kubernetes API, as the words of roles' names; nothing, and no account is needed. */ -}}
{{- define "dnsweir.reads" -}}
{{- if .Values.pods.enabled }}pods {{ end }}
{{- if .Values.serviceEntries.enabled }}service-entries {{ end }}
{{- if .Values.multicluster.domains }}multicluster {{ end }}
{{- end }}

{{- /* The service account of the proxies; nothing: they have the namespace's own, and read nothing. */ -}}
{{- define "dnsweir.account" -}}
{{- with .Values.serviceAccount }}
{{- if or .name .annotations (include "dnsweir.reads" $) }}{{ .name | default $.Release.Name }}{{ end }}
{{- end }}
{{- end }}

{{- /* Where `admin` is: in a network of their own, the kubelet reaches no pod's loopback address. "[::]" is both families. */ -}}
{{- define "dnsweir.adminPort" }}{{ .Values.admin | splitList ":" | last }}{{ end }}
{{- define "dnsweir.admin" }}
{{- if and (eq .Values.mode "local-redirect") (include "dnsweir.isLoopback" .Values.admin) }}[::]:{{ include "dnsweir.adminPort" . }}
{{- else }}{{ .Values.admin }}{{ end }}
{{- end }}
{{- define "dnsweir.isLoopback" }}{{ if regexMatch "^(127\\.|\\[::1\\])" . }}yes{{ end }}{{ end }}

{{- /* Port 53 of its own network is anybody's in it, so that a pod there needs neither root nor a capability. */ -}}
{{- define "dnsweir.ofItsOwnNetwork" -}}
seccompProfile: {type: RuntimeDefault}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "53"}]
{{- end }}

{{- define "dnsweir.webhookLabels" -}}
app.kubernetes.io/name: dnsweir-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
