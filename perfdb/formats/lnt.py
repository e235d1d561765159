"""LNT test reports: the flat form (format_version 2 and 5: machine, run or commit, tests) and the old one
(Machine, Run, Tests with `suite.test.metric` names).

A sample counts where its status is 0 (pass); a failed one is flagged out. A test without a valid sample has
failed, and a test that is not there is missing: neither is an improvement. No tests at all is no pass.
"""

from __future__ import annotations

import re
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, Flagged, MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite, shown

NAME = "lnt"
# Metric in our words, unit, direction. Metrics of other test suites are kept without direction.
_METRICS: dict[str, tuple[str, str, bool | None]] = {
    "compile_time": ("compile_time", "s", True),
    "execution_time": ("execution_time", "s", True),
    "score": ("score", "", False),
    "mem_bytes": ("memory", "bytes", True),
    "code_size": ("code_size", "bytes", True),
}
_OLD_METRICS = {
    "compile": "compile_time",
    "exec": "execution_time",
    "score": "score",
    "mem": "mem_bytes",
    "code_size": "code_size",
}
_STATUS_OF = {"compile_time": "compile_status"}
_NOT_METRICS = {
    "name",
    "compile_status",
    "execution_status",
    "hash",
    "hash_status",
    "profile",
    "info",
    "id",
    "run_id",
}
_REVISION = ("llvm_project_revision", "commit", "git_sha", "revision", "run_order")


def _sniff(source: Source) -> bool:
    document = source.first_object
    flat = isinstance(document.get("machine"), dict) and isinstance(document.get("tests"), list)
    if flat and {"run", "commit", "format_version"} & document.keys():
        return True
    return {"Machine", "Run", "Tests"} <= document.keys()


def _read(source: Source) -> Reading:
    return read_report(source, source.document)


def read_report(source: Source, document: Any) -> Reading:
    """One report. Raises FormatError where it is none."""
    if not isinstance(document, dict):
        raise source.error("$", f"expected an object, got {shown(document)}")
    draft = Draft(NAME)
    if "Tests" in document:
        _old(draft, source, document)
    else:
        _flat(draft, source, document)
    return draft.finish()


def _flat(draft: Draft, source: Source, document: dict[str, Any]) -> None:
    tests = document.get("tests")
    if not isinstance(tests, list):
        raise source.error("tests", "expected an array")
    _header(draft, _object(document.get("machine")), _object(document.get("run")), document.get("commit"))
    for index, test in enumerate(tests):
        with draft.item(f"tests[{index}]"):
            if not isinstance(test, dict) or not isinstance(test.get("name"), str):
                raise ItemError("a test without a name")
            _test(draft, test["name"], test)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _header(draft: Draft, machine: dict[str, Any], run: dict[str, Any], commit: Any) -> None:
    name = machine.get("name", machine.get("Name"))
    info = _object(machine.get("info", machine.get("Info", machine)))
    if isinstance(name, str):
        draft.klass["machine"] = name
    draft.klass |= {
        key: value
        for key, value in info.items()
        if isinstance(value, (str, int)) and key not in ("name", "Name")
    }
    run_info = _object(run.get("Info", run))
    revision = (
        commit
        if isinstance(commit, str)
        else next((run_info[key] for key in _REVISION if key in run_info), None)
    )
    if isinstance(revision, (str, int)) and not isinstance(revision, bool) and str(revision).strip():
        draft.commit = CommitReading(str(revision).strip())
    started = run.get("start_time", run.get("Start Time"))
    draft.started_at = started if isinstance(started, str) else None
    draft.info |= {key: run_info.get(key) for key in ("tag", "producer", "cc_version") if key in run_info}


def _test(draft: Draft, name: str, test: dict[str, Any]) -> None:
    metrics: list[MetricReading] = []
    reasons: list[str] = []
    for key, raw in test.items():
        if key in _NOT_METRICS or raw is None or isinstance(raw, (dict, str)):
            continue
        if key == "compile_time" and all(value == 0 for value in _list(raw)):
            continue  # written where nothing was compiled
        with draft.item(f"{name}.{key}", name):
            statuses = test.get(_STATUS_OF.get(key, "execution_status"))
            made = _metric(key, raw, statuses)
            if made.flagged and not made.launches[0]:
                reasons.append(f"{key}: {made.flagged[0].reason}")
            else:
                metrics.append(made)
    for key in ("compile_status", "execution_status"):
        codes = _list(test.get(key))
        if codes and all(code != 0 for code in codes) and not any(key[:4] in reason for reason in reasons):
            reasons.append(f"{key} {codes[0]}")
    status = "error" if reasons else "ok"
    draft.add(name, metrics, status=status, reason="; ".join(reasons))


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _metric(key: str, raw: Any, statuses: Any) -> MetricReading:
    label, unit, lower = _METRICS.get(key, (key, "", None))
    codes = _list(statuses)
    samples: list[Number] = []
    flagged: list[Flagged] = []
    for index, value in enumerate(_list(raw)):
        code = codes[index] if index < len(codes) else (codes[0] if len(codes) == 1 else 0)
        if value is None:
            continue
        number = finite(value, key)
        if code == 0 and not isinstance(code, bool):
            samples.append(number)
        else:
            flagged.append(Flagged(number, f"status {shown(code)}"))
    return metric(label, unit, lower_is_better=lower, launches=[samples], flagged=tuple(flagged))


def _old(draft: Draft, source: Source, document: dict[str, Any]) -> None:
    tests = document.get("Tests")
    if not isinstance(tests, list):
        raise source.error("Tests", "expected an array")
    _header(draft, _object(document.get("Machine")), _object(document.get("Run")), None)
    suite = _object(_object(document.get("Run")).get("Info")).get("tag")
    grouped: dict[str, dict[str, Any]] = {}
    for index, test in enumerate(tests):
        with draft.item(f"Tests[{index}]"):
            if not isinstance(test, dict) or not isinstance(test.get("Name"), str):
                raise ItemError("a test without a Name")
            _old_row(grouped, test["Name"], test.get("Data"), suite)
    for name, fields in grouped.items():
        with draft.item(name, name):
            _test(draft, name, fields)


def _old_row(grouped: dict[str, dict[str, Any]], full: str, data: Any, suite: Any) -> None:
    """`nts.SingleSource/Foo.exec.status`: suite, test and metric, or the status of one."""
    name = full.removeprefix(f"{suite}.") if isinstance(suite, str) else full
    match = re.match(r"^(.+?)\.(compile|exec|score|mem|code_size|hash)(\.status)?$", name)
    if match is None:
        grouped.setdefault(name, {})["value"] = data
        return
    test, key, is_status = match[1], match[2], match[3]
    fields = grouped.setdefault(test, {})
    if is_status:
        fields["compile_status" if key == "compile" else "execution_status"] = data
    elif key != "hash":
        fields[_OLD_METRICS[key]] = data


FORMAT = Format(NAME, "LNT report", _sniff, _read, ('"machine"', '"tests"'))
