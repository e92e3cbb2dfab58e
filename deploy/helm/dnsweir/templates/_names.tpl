{{- define "dnsweir.labels" -}}
app.kubernetes.io/name: dnsweir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The cluster's DNS, as values of the configuration. */ -}}
{{- define "dnsweir.clusterDNS" -}}
{{- if .Values.clusterDNS }}{{ range $at, $address := .Values.clusterDNS }}{{ if $at }} {{ end }}{{ quote $address }}{{ end }}
{{- else }}(env)"KUBE_DNS_SERVICE_HOST"{{ end }}
{{- end }}

{{- define "dnsweir.localAddress" -}}
{{- range $at, $address := .Values.localAddress }}{{ if $at }} {{ end }}{{ quote $address }}{{ end }}
{{- end }}

{{- define "dnsweir.configuration" -}}
{{- $cluster := include "dnsweir.clusterDNS" . -}}
{{- $mode := .Values.mode -}}
listen {{ if eq $mode "cluster-address" }}{{ $cluster }}{{ else }}{{ include "dnsweir.localAddress" . }}{{ end }}
admin {{ quote .Values.admin }}
{{- /* Others get where the node's own programs alone do not: health and metrics are all there is. */ -}}
{{- if not (regexMatch "^(127\\.|\\[::1\\])" .Values.admin) }} status=#false{{ end }}

zone "." {
    {{- if .Values.serviceEntries.enabled }}
    service-entries {
        {{- with .Values.serviceEntries.namespaces }}
        namespaces{{ range . }} {{ quote . }}{{ end }}
        {{- end }}
        {{- with .Values.serviceEntries.range }}
        range{{ range . }} {{ quote . }}{{ end }}
        {{- end }}
    }
    {{- end }}
    cache
    forward {{ $cluster }}
}
{{- with .Values.multicluster }}
{{- if .domains }}

zone{{ range .domains }} {{ quote . }}{{ end }} {
    kubernetes { domain "cluster.local"; multicluster{{ range .domains }} {{ quote . }}{{ end }}; memory {{ quote .memory }} }
}
{{- end }}
{{- end }}

node {
    interface "nodelocaldns-dw"
    {{- if ne $mode "no-kube-proxy" }}
    iptables
    {{- if eq $mode "ipvs" }}
    mode "link-local"
    {{- end }}
    cluster-dns {{ $cluster }}
    {{- end }}
}
{{- if .Values.pods.enabled }}

pods { node (env)"NODE_NAME" }
{{- end }}
{{- end }}

{{- /* What the configuration reads of the Kubernetes API, as the words of roles' names; nothing, and no account is needed. */ -}}
{{- define "dnsweir.reads" -}}
{{- if .Values.pods.enabled }}pods {{ end }}
{{- if .Values.serviceEntries.enabled }}service-entries {{ end }}
{{- if .Values.multicluster.domains }}multicluster {{ end }}
{{- end }}

{{- define "dnsweir.webhookLabels" -}}
app.kubernetes.io/name: dnsweir-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
