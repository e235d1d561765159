"""Webhooks of forges: is the sender who he says he is, and what does his event ask for?

Every project has one secret, derived from the installation's key: nothing is stored, and nothing can be read back
from the database. A pull request from a fork is never measured by an event: its code comes from a stranger.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.crypto import constant_time_compare, salted_hmac

from perfdb.models import Job, Project
from perfdb.services import catalogue, schedule, track
from perfdb.services.placing import place
from perfdb.vcs import is_sha

FORGES = ("github", "gitlab", "gitea")
_OPENED = {"opened", "synchronize", "synchronized", "reopened", "open", "update", "reopen"}


class Ignored(Exception):
    """A genuine event that asks for nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Push:
    """New commits on a branch."""

    branch: str


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request of the repository itself that was opened or got new commits."""

    number: int
    sha: str


def secret(project: Project) -> str:
    return salted_hmac("perfdb.webhook", project.slug, algorithm="sha256").hexdigest()


def genuine(project: Project, forge: str, headers: Mapping[str, str], raw: bytes) -> bool:
    """Whether the event was signed with the project's secret (GitLab sends the secret itself)."""
    key = secret(project)
    if forge == "gitlab":
        return constant_time_compare(headers.get("X-Gitlab-Token", ""), key)
    signed = hmac.new(key.encode(), raw, hashlib.sha256).hexdigest()
    if forge == "github":
        return constant_time_compare(headers.get("X-Hub-Signature-256", ""), f"sha256={signed}")
    return constant_time_compare(headers.get("X-Gitea-Signature", ""), signed)


def read(forge: str, headers: Mapping[str, str], payload: Any) -> Push | PullRequest:
    """What the event asks for. Raises Ignored, or ValueError where a field that must be there is not."""
    name = {"github": "X-GitHub-Event", "gitlab": "X-Gitlab-Event", "gitea": "X-Gitea-Event"}[forge]
    event = headers.get(name, "")
    try:
        if event in ("push", "Push Hook"):
            return _push(payload)
        if event == "pull_request":
            return _pull_request(payload["action"], payload["pull_request"], payload["repository"])
        if event == "Merge Request Hook":
            return _merge_request(payload["object_attributes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{event}: the event lacks {error}") from None
    raise Ignored(f"event {event[:60]!r} asks for nothing here")


def _push(payload: Any) -> Push:
    kind, _, branch = str(payload["ref"]).partition("refs/heads/")
    if kind or not branch:
        raise Ignored("no branch was pushed")
    if set(str(payload["after"])) == {"0"}:
        raise Ignored("the branch was deleted")
    return Push(branch)


def _pull_request(action: Any, request: Any, repository: Any) -> PullRequest:
    if action not in _OPENED:
        raise Ignored(f"action {str(action)[:60]!r} brings no new commit")
    home = (request["head"].get("repo") or {}).get("full_name")
    if home != repository["full_name"]:
        raise Ignored("the pull request comes from a fork, whose code is not run unasked")
    return PullRequest(_number(request["number"]), _sha(request["head"]["sha"]))


def _merge_request(attributes: Any) -> PullRequest:
    if attributes.get("action") not in _OPENED:
        raise Ignored(f"action {str(attributes.get('action'))[:60]!r} brings no new commit")
    if attributes["source_project_id"] != attributes["target_project_id"]:
        raise Ignored("the merge request comes from a fork, whose code is not run unasked")
    return PullRequest(_number(attributes["iid"]), _sha(attributes["last_commit"]["id"]))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise ValueError(f"number: {value!r} is no number of a pull request")
    return value


def _sha(value: Any) -> str:
    if not isinstance(value, str) or not is_sha(value):
        raise ValueError(f"sha: {str(value)[:80]!r} is no commit")
    return value


def measure_pull_request(project: Project, number: int, sha: str) -> Job:
    """Fetch, record the commit's line on the pull request's branch and ask for its measurement.

    Raises perfdb.vcs.GitError where the repository cannot be read or lacks the commit.
    """
    mirror = track.repository(project)
    mirror.fetch()
    line = mirror.first_parents(sha, depth=project.history_depth)
    track.record_commits(project, line)
    branch = catalogue.branch(project, name=None, pull_request=number)
    place(branch, [info.sha for info in line])
    commit = project.commits.get(sha=line[-1].sha)
    return schedule.request(
        branch, commit, pool=catalogue.pool("default"), priority=schedule.PRIORITY["asked"]
    )
