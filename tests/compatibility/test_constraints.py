"""Both files of constraints fit pyproject.toml: else one is from before a bound was changed."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[2]
UNTYPED = {"types-psutil", "types-pyyaml", "papa-attention"}


def pinned(file: str) -> dict[str, Version]:
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", (CHECKOUT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in pins}


def required() -> dict[str, Requirement]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    requirements = {
        canonicalize_name(requirement.name): requirement for requirement in map(Requirement, texts)
    }
    return {name: requirement for name, requirement in requirements.items() if name not in UNTYPED}


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_every_package_that_is_named_is_pinned_inside_its_range(file: str) -> None:
    versions = pinned(file)
    wrong = {
        str(requirement_name): str(versions.get(name))
        for name, requirement_name in required().items()
        if name not in versions or versions[name] not in requirement_name.specifier
    }
    assert not wrong
