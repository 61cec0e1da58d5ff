#!/bin/bash
# The bill of materials of a release: what cargo resolves and nothing else, the same each time, and right by CycloneDX's schema.
#
# The schema comes with a package of PyPI, which is installed below the target directory, so this runs only by name.
bom=$CI_TARGET/flowlane.cdx.json
contrib/release/materials x86_64 static >"$bom"
contrib/release/materials x86_64 static | cmp - "$bom"
# Each crate of the build once, no other, the command among them.
cmp <(grep -oE 'pkg:cargo/[^"]+' "$bom" | sort -u) \
    <(cargo tree --locked -p flowlane --target x86_64-unknown-linux-gnu --prefix none -e normal,build --format '{p}' | sed -E 's,^([^ ]+) v([^ ]+).*,pkg:cargo/\1@\2,' | sort -u)
# Whatever is linked and of a registry has a checksum and a licence.
if grep '"scope": "required"' "$bom" | grep 'pkg:cargo/' | grep -v 'pkg:cargo/flowlane' | grep -vE '"licenses".*"SHA-256"'; then
    echo "these have no checksum or no licence" >&2
    exit 1
fi
echo "$(grep -c '"required"' "$bom") are linked, $(grep -c '"excluded"' "$bom") compile"

python=$(PATH=/usr/bin:$PATH command -v python3) || skip "there is no python3, so the schema was not applied"
tools=$CI_TARGET/tools/materials
pinned='cyclonedx-python-lib[json-validation]==11.12.0'
if [ "$(cat "$tools/pinned" 2>/dev/null)" != "$pinned" ]; then
    rm -rf "$tools"
    mkdir -p "${tools%/*}"
    "$python" -m venv "$tools" || skip "python3 makes no environment (Debian: python3-venv), so the schema was not applied"
    retry "$tools/bin/pip" --quiet --disable-pip-version-check install "$pinned" || skip "the schema is not to be had from PyPI"
    echo "$pinned" >"$tools/pinned"
fi
"$tools/bin/python" - "$bom" <<'END'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

check = JsonStrictValidator(SchemaVersion.V1_5).validate_str
text = open(sys.argv[1]).read()
wrong = check(text)
if wrong:
    sys.exit(f"not CycloneDX 1.5: {wrong}")
if not check(text.replace('"scope"', '"scoop"', 1)):
    sys.exit("a wrong field is taken for one of CycloneDX")
print("CycloneDX 1.5: ok")
END
