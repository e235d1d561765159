"""The history that `make demo` measures: a real repository, the same commits every time.

The first commit is `examples/tensorlab` as it lies; each later one is a few edits of it. What is planted is said
beside the commit that plants it, and is compared with what perfdb found, never shown to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from perfdb.vcs import WorkingCopy

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "tensorlab"
AUTHOR, EMAIL = "Tensorlab developer", "dev@tensorlab.invalid"
FIRST_DAY = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class Planted(StrEnum):
    """What a commit does to performance; the demo is right when the two regressions are found and no other."""

    SLOWER = "layer_norm is about 30 % slower"
    OUT_OF_MEMORY = "long prompts run out of memory in the server"
    FASTER = "distances is faster"
    NO_BUILD = "does not build"
    WRONG = "softmax is wrong"
    DOCUMENTS = "documentation only"


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which stands exactly once in the file, by `new`; an empty `old` appends to the file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Step:
    """One commit of the script."""

    message: str
    edits: Sequence[Edit] = ()
    planted: Planted | None = None


@dataclass(frozen=True)
class History:
    """The repository made, and the SHA at which each thing was planted."""

    path: Path
    shas: tuple[str, ...]
    planted: dict[Planted, str] = field(default_factory=dict)


_OPS, _ATTENTION, _README = "tensorlab/ops.py", "tinylm/attention.py", "README.md"
_MASKED = """    heads, tokens, width = query.shape
    scores = (query @ key.transpose(1, 2)) * width**-0.5
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).triu(1)
    weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    return weights @ value
"""

STEPS: tuple[Step, ...] = (
    Step("Describe the layout", [Edit(_README, "", "\n`tensorlab` holds the operations.\n")], Planted.DOCUMENTS),
    Step(
        "Name the epsilon of layer_norm",
        [
            Edit(_OPS, "def layer_norm", "EPSILON = 1e-5\n\n\ndef layer_norm"),
            Edit(_OPS, "eps: float = 1e-5", "eps: float = EPSILON"),
        ],
    ),
    Step("Say what softmax returns", [Edit(_OPS, "Softmax over the last dimension.", "Rows that sum to 1.")]),
    Step("List the served model", [Edit(_README, "", "`tinylm` is the model that is served.\n")], Planted.DOCUMENTS),
    Step(
        "Let distances use one fused reduction",
        [
            Edit(
                _OPS,
                "return (difference * difference).sum(dim=-1).sqrt()",
                "return torch.linalg.vector_norm(difference, dim=-1)",
            )
        ],
        Planted.FASTER,
    ),
    Step(
        "Name the model's size in the docstring",
        [Edit("tinylm/model.py", "random weights,", "random weights (64 wide),")],
    ),
    Step(
        "Stamp the build with its version",
        [Edit("build.py", '"BUILT = True\\n"', '"BUILT = True\\nVERSION = %r\\n" % version()')],
        Planted.NO_BUILD,
    ),
    Step("Read the version before it is used", [Edit("build.py", "% version()", '% "0.2"')]),
    Step("Note how to build", [Edit(_README, "", "`python build.py` builds it.\n")], Planted.DOCUMENTS),
    Step(
        "Keep layer_norm exact for large offsets",
        [
            Edit(
                _OPS,
                "    variance = (centred * centred)",
                "    centred = centred - centred.mean(dim=-1, keepdim=True)\n    variance = (centred * centred)",
            )
        ],
        Planted.SLOWER,
    ),
    Step("Say what the rows are", [Edit("bench/cases.py", "Inputs of", "Seeded inputs of")]),
    Step(
        "Sum softmax without the copy",
        [Edit(_OPS, "raised / raised.sum(dim=-1, keepdim=True)", "raised / raised.sum(dim=0, keepdim=True)")],
        Planted.WRONG,
    ),
    Step(
        "Sum softmax over the rows again",
        [Edit(_OPS, "raised / raised.sum(dim=0, keepdim=True)", "raised / raised.sum(dim=-1, keepdim=True)")],
    ),
    Step(
        "Write the attention mask out",
        [
            Edit(
                _ATTENTION,
                "    return functional.scaled_dot_product_attention("
                "query[None], key[None], value[None], is_causal=True)[0]\n",
                _MASKED,
            )
        ],
        Planted.OUT_OF_MEMORY,
    ),
    Step("Mention the engine", [Edit(_README, "", "perfdb's small engine serves it.\n")], Planted.DOCUMENTS),
    Step("Name the folders that are built", [Edit("build.py", "FOLDERS = (", "FOLDERS: tuple[str, ...] = (")]),
    Step("Say that positions are fixed", [Edit(_ATTENTION, "Fixed position codes", "Fixed, untrained position codes")]),
    Step("Add a licence note", [Edit(_README, "", "\nFree to copy.\n")], Planted.DOCUMENTS),
    Step("Describe the training step", [Edit("bench/train.py", "phase by phase.", "phase after phase.")]),
    Step("Export the operations", [Edit("tensorlab/__init__.py", "", "from tensorlab import ops as ops\n")]),
    Step("Tell who asks", [Edit(_README, "", "\nQuestions: dev@tensorlab.invalid\n")], Planted.DOCUMENTS),
    Step("Say what newest does", [Edit(_ATTENTION, "against all keys so far.", "against all keys seen so far.")]),
    Step("Bump the version", [Edit("build.py", '"0.2"', '"0.3"')]),
)  # fmt: skip


def write(path: Path) -> History:
    """Make the repository at `path`, which must not exist. Raises perfdb.vcs.GitError."""
    copy = WorkingCopy(path)
    shutil.copytree(
        SOURCE, path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "_built.py")
    )
    (path / ".gitignore").write_text("__pycache__/\ntensorlab/_built.py\n")
    shas = [_commit(copy, "A tensor library, a tiny model and what perfdb measures of them", 0)]
    planted: dict[Planted, str] = {}
    for number, step in enumerate(STEPS, 1):
        for edit in step.edits:
            _apply(path, edit)
        shas.append(_commit(copy, step.message, number))
        if step.planted and step.planted is not Planted.DOCUMENTS:
            planted[step.planted] = shas[-1]
    return History(path, tuple(shas), planted)


def _apply(root: Path, edit: Edit) -> None:
    file = root / edit.path
    text = file.read_text()
    if not edit.old:
        file.write_text(text + edit.new)
        return
    if text.count(edit.old) != 1:
        raise ValueError(f"{edit.path}: {edit.old!r} stands {text.count(edit.old)} times, not once")
    file.write_text(text.replace(edit.old, edit.new))


def _commit(copy: WorkingCopy, message: str, number: int) -> str:
    return copy.commit(message, author=AUTHOR, email=EMAIL, at=FIRST_DAY + timedelta(hours=7 * number))
