"""Prints the software bill of materials of this Python environment: SPDX 2.3 in JSON.

Runs while the image is built, in the environment that was made from uv.lock, so it needs nothing
but the standard library. It covers what the image adds to its base.
"""

import hashlib
import json
import os
import re
import sys
import time
from importlib.metadata import Distribution, distributions

UNKNOWN = "NOASSERTION"


def describe(package: Distribution) -> dict:
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    locator = f"pkg:pypi/{name}@{package.version}"
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl"}
    return {
        "SPDXID": f"SPDXRef-{name}",
        "name": name,
        "versionInfo": package.version,
        "supplier": UNKNOWN,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": package.metadata.get("License-Expression", UNKNOWN),
        "copyrightText": UNKNOWN,
        "externalRefs": [{**reference, "referenceLocator": locator}],
    }


def relate(source: str, kind: str, target: str) -> dict:
    return {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}


def make_document(product: str) -> dict:
    """Describe the product, by its normalised name, and all packages beside it."""
    packages = sorted(map(describe, distributions()), key=lambda package: package["name"])
    content = json.dumps(packages, sort_keys=True).encode()
    made = time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    root = f"SPDXRef-{product}"
    namespace = f"https://spdx.org/spdxdocs/{product}-{hashlib.sha256(content).hexdigest()}"
    contents = [package["SPDXID"] for package in packages if package["SPDXID"] != root]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": product,
        "documentNamespace": namespace,
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", made),
            "creators": ["Tool: koord-operators/tools/sbom.py"],
        },
        "packages": packages,
        "relationships": [
            relate("SPDXRef-DOCUMENT", "DESCRIBES", root),
            *(relate(root, "CONTAINS", content) for content in contents),
        ],
    }


if __name__ == "__main__":
    json.dump(make_document(sys.argv[1]), sys.stdout, indent=1)
