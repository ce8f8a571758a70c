"""Packages as pip installs them, into any folder."""

import functools

from triptych.lab.running import sources


def package_in(folder, name, *, installed=True, text=""):
    """A package with one file, and with the record of its distribution where it was installed."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    if installed:
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n{info.name}/METADATA,,\n")
    return folder / name / "__init__.py"


def put_on_path(monkeypatch, *folders):
    """Python finds what is in these folders, and what is installed is looked up again."""
    for folder in folders:
        monkeypatch.syspath_prepend(str(folder))
    for known in ("_distributions", "_installed_into", "_packages_with_studies"):
        function = getattr(sources, known).__wrapped__
        monkeypatch.setattr(sources, known, functools.cache(function))
