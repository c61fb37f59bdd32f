# SPDX-License-Identifier: MIT
"""What the public headers declare: exported functions, structures with their fields, constants."""
import pathlib
import re


def read(folder):
    """Text of all public headers without comments and preprocessor lines."""
    text = "\n".join(p.read_text() for p in sorted(pathlib.Path(folder).glob("*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"\\\n", " ", text)
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


def functions(folder):
    """Names declared with STRATA_API, sorted."""
    declarations = re.findall(r"\bSTRATA_API\b([^;{]*);", read(folder))
    names = [re.search(r"\b(strata_\w+)\s*\(", d) for d in declarations]
    if not all(names):
        raise SystemExit("a STRATA_API declaration without a strata_ name")
    return sorted(n.group(1) for n in names)


def structures(folder):
    """{structure: [field, ...]} in declaration order."""
    found = {}
    for name, body in re.findall(r"typedef struct (strata_\w+)\s*\{(.*?)\}", read(folder), re.S):
        fields = [f.strip() for f in body.split(";") if f.strip()]
        found[name] = [re.search(r"(\w+)\s*(\[\w+\])?$", f).group(1) for f in fields]
    return found


def constants(folder):
    """Names of all enumerators in declaration order."""
    bodies = re.findall(r"\benum\s*\{(.*?)\}", read(folder), re.S)
    return [name for body in bodies for name in re.findall(r"\b(STRATA_\w+)\s*=", body)]
