"""Git through its one room: real repositories, hostile names, merges, force pushes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdb.vcs import CommitGone, NoRepository, Repository
from tests.services.repo import GitRepo


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.commit("first", {"a.txt": "1"})
    return repo


def mirror(repo: GitRepo) -> Repository:
    return Repository.open_mirror(str(repo.path), repo.path.parent / "mirror.git")


def test_first_parent_line_and_the_side_of_a_merge(repo: GitRepo) -> None:
    repo.git("checkout", "--quiet", "-b", "side")
    side = [repo.commit(f"side {i}", {"b.txt": str(i)}) for i in range(2)]
    repo.git("checkout", "--quiet", "main")
    own = repo.commit("main goes on", {"a.txt": "2"})
    repo.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")
    merge = repo.git("rev-parse", "HEAD")
    found = mirror(repo)
    assert [info.sha for info in found.first_parents("main")][-2:] == [own, merge]
    assert [info.sha for info in found.merged_side(merge)] == side
    assert found.merged_side(own) == []
    assert found.merge_base("side", own) == repo.git("rev-parse", "HEAD~2")
    assert found.is_ancestor(side[0], merge)
    assert found.changed_paths(own, merge) == ["b.txt"]


@pytest.mark.parametrize(
    "name", ["--upload-pack=x", "-x", "a..b", "a b", "a;b", "", "a\nb", "x^{tree}", "@{-1}"]
)
def test_hostile_references_are_no_references(repo: GitRepo, name: str) -> None:
    with pytest.raises(CommitGone):
        mirror(repo).resolve(name)


@pytest.mark.parametrize("url", ["", "-oProxyCommand=x", "ext::sh -c x", "a\nb"])
def test_hostile_urls_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(NoRepository):
        Repository.open_mirror(url, tmp_path / "m.git")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_repository_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(NoRepository, match="is no repository that git can read"):
        Repository.open_mirror(str(tmp_path / "plain"), tmp_path / "m.git")
    assert not (tmp_path / "m.git").exists()


def test_worktrees_are_clean_and_vanish(repo: GitRepo, tmp_path: Path) -> None:
    second = repo.commit("second", {"a.txt": "2"})
    found = mirror(repo)
    at = tmp_path / "tree"
    with found.worktree(second, at) as root:
        (root / "junk").write_text("x")
    assert not at.exists()
    with found.worktree(second, at) as root:
        assert sorted(path.name for path in root.iterdir()) == [".git", "a.txt"]


def test_a_commit_stays_readable_after_a_force_push(repo: GitRepo) -> None:
    gone = repo.commit("gone", {"a.txt": "x"})
    found = mirror(repo)
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    kept = repo.commit("kept", {"a.txt": "y"})
    found.fetch()
    assert found.branches()["main"] == kept
    assert found.commit(gone).subject == "gone"
    with pytest.raises(CommitGone):
        found.resolve("f" * 40)


def test_messages_keep_their_lines_and_signs(repo: GitRepo) -> None:
    sha = repo.commit('$(touch /tmp/x); "quoted" <b>\n\nbody line', {"a.txt": "3"})
    info = mirror(repo).commit(sha)
    assert info.subject == '$(touch /tmp/x); "quoted" <b>'
    assert info.message.endswith("body line")
