"""Pages load nothing from elsewhere: plotly and htmx come out of installed packages."""

from pathlib import Path

from django.contrib.staticfiles import finders


def _found(path: str) -> Path:
    found = finders.find(path)
    assert isinstance(found, str), path
    return Path(found)


def test_plotly_is_the_packages_own_file() -> None:
    assert b"plotly.js v" in _found("plotly/plotly.min.js").read_bytes()[:500]


def test_nothing_else_of_the_plotly_package_is_served() -> None:
    assert finders.find("plotly/widgetbundle.js") is None
    assert finders.find("plotly/../plotly/plotly.min.js") is None
    served = [path for finder in finders.get_finders() for path, _ in finder.list([]) if "widget" in path]
    assert served == []


def test_htmx_comes_with_its_django_package() -> None:
    assert _found("django_htmx/htmx-2.min.js").stat().st_size > 10_000
