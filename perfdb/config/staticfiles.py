"""A static files finder for the one file of the plotly package that pages need."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

PLOTLY_JS = "plotly/plotly.min.js"


class PlotlyFinder(BaseFinder):
    """Serves plotly's bundled library as `plotly/plotly.min.js`, and nothing else of the package."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Found without importing plotly, which takes longer than everything else a web process does at start.
        spec = importlib.util.find_spec("plotly")
        locations = spec.submodule_search_locations if spec else None
        if not locations:
            raise ModuleNotFoundError("the package plotly is needed to serve its JavaScript")
        self.storage = FileSystemStorage(location=Path(locations[0]) / "package_data")
        self.storage.prefix = "plotly"  # type: ignore[attr-defined]  # read by collectstatic
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002  (Django's)
        """Absolute path of the file when `path` names it, else an empty list, as Django's finders do."""
        if path != PLOTLY_JS:
            return []
        found = self.storage.path(Path(PLOTLY_JS).name)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        """The one file, for collectstatic."""
        yield Path(PLOTLY_JS).name, self.storage
