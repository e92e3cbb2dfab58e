#!/bin/bash
# Gets the schemas of objects that are not part of Kubernetes, from the modules that publish them: schemas.sh FOLDER
set -euo pipefail
out=$1 istio=${ISTIO_API:-1.31.4} multicluster=${MCS_API:-0.5.2} operator=${PROMETHEUS_OPERATOR:-0.85.0}
mkdir -p "$out"

published() { go mod download -json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])'; }
# Istio's schemas are in one file; only one is needed.
awk 'BEGIN { RS = "---\n" } /\n  name: serviceentries.networking.istio.io\n/' \
    "$(published "istio.io/api@v$istio")/kubernetes/customresourcedefinitions.gen.yaml" > "$out/serviceentries.yaml"
cat "$(published "sigs.k8s.io/mcs-api@v$multicluster")/config/crd/multicluster.x-k8s.io_serviceimports.yaml" > "$out/serviceimports.yaml"
monitoring=$(published "github.com/prometheus-operator/prometheus-operator@v$operator")/example/prometheus-operator-crd
cat "$monitoring"/monitoring.coreos.com_{service,pod}monitors.yaml > "$out/monitors.yaml"
grep -q 'name: v1alpha3' "$out/serviceentries.yaml"
