#!/bin/bash
# Builds Kubernetes' programs, CoreDNS and Helm from the Go module proxy into a folder: programs.sh FOLDER
set -euo pipefail
out=$(realpath -m "$1")
kubernetes=${KUBERNETES:-1.35.4} coredns=${COREDNS:-1.15.0} helm=${HELM:-4.3.1}
# The compiler's own garbage collector takes a tenth of its time by default, and debug information that is stripped, another
# twentieth.
export CGO_ENABLED=0 GOFLAGS='-buildvcs=false -gcflags=all=-dwarf=false' GOBIN=$out GOGC=400
mkdir -p "$out/source" && cd "$out/source"

# k8s.io/kubernetes replaces its modules with folders of its own tree. Each is also published with the version
# v0.MINOR.PATCH, which a module of ours may require instead.
manifest=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | python3 -c 'import json, sys; print(json.load(sys.stdin)["GoMod"])')
{
    printf 'module cluster\n\ngo 1.25.0\n\nrequire k8s.io/kubernetes v%s\n\n' "$kubernetes"
    sed -n "s|^\t\(\S*\) => ./staging/src/.*|replace \1 => \1 v0.${kubernetes#1.}|p" "$manifest"
} > go.mod
programs=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl)
{
    printf '//go:build tools\n\npackage tools\n\n'
    printf 'import _ "k8s.io/kubernetes/cmd/%s"\n' "${programs[@]}"
} > tools.go
go mod tidy
base=k8s.io/component-base/version
flags="-s -w -X $base.gitVersion=v$kubernetes -X $base.gitMajor=1 -X $base.gitMinor=$(cut -d. -f2 <<< "$kubernetes")"
# All at once: shared packages are compiled once, and the programs are linked in parallel.
go build -ldflags "$flags" -o "$out/" "${programs[@]/#/k8s.io/kubernetes/cmd/}"
go install "helm.sh/helm/v${helm%%.*}/cmd/helm@v$helm"

# CoreDNS with only the plugins that the tests use: those for clouds and tracing make up most of its compilation.
plugins=(
    acl any autopath bind bufsize cache cancel chaos debug dns64 errors file forward header health hosts k8s_external kubernetes
    loadbalance local log loop metadata metrics minimal nsid ready reload rewrite root secondary template timeouts tls transfer
    view whoami
)
mkdir -p "$out/source/coredns" && cd "$out/source/coredns"
printf 'module cluster/coredns\n\ngo 1.25.0\n\nrequire github.com/coredns/coredns v%s\n' "$coredns" > go.mod
{
    printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
    printf '\t_ "github.com/coredns/coredns/plugin/%s"\n' "${plugins[@]}"
    printf ')\n\nfunc main() { coremain.Run() }\n'
} > main.go
go mod tidy
go build -ldflags '-s -w' -o "$out/coredns"
