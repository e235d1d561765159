"""The state folder: made private, refused when it is not ours, moved when the database cannot enter it."""

import os
import stat
from pathlib import Path

import pytest

from perfdb.local import state as state_module
from perfdb.local.account import Account
from perfdb.local.state import StateError, StateFolder, locate, make_secret_key, own_private_folder, prepare

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the database as another user")
NOBODY = Account(name="nobody", uid=65534, gid=65534)


def test_everything_in_it_is_closed_to_others(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    prepare(folder, account=None)
    make_secret_key(folder)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder.path, *folder.path.iterdir()]}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    prepare(folder, account=None)  # a second time changes nothing and does not fail


def test_the_secret_key_is_made_once(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    assert folder.secret_key() is None
    prepare(folder, account=None)
    make_secret_key(folder)
    key = folder.secret_key()
    assert key is not None
    assert len(key) >= 50
    make_secret_key(folder)
    assert folder.secret_key() == key
    assert stat.S_IMODE(folder.secret_key_file.stat().st_mode) == 0o600


def test_the_folder_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PERFDB_STATE", raising=False)
    assert locate(checkout=tmp_path).path == tmp_path / ".perfdb"
    monkeypatch.setenv("PERFDB_STATE", str(tmp_path / "elsewhere"))
    assert locate(checkout=tmp_path).path == tmp_path / "elsewhere"


def test_sockets_of_a_deep_checkout_lie_where_their_names_fit(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / ("d" * 100) / "state")
    other = StateFolder(tmp_path / ("e" * 100) / "state")
    socket = folder.postgres_socket_folder / ".s.PGSQL.5432.lock"
    assert len(os.fsencode(socket)) <= 107
    assert folder.postgres_socket_folder != other.postgres_socket_folder
    assert folder.valkey_socket.parent != folder.postgres_socket_folder


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("mine")
    with pytest.raises(StateError, match="state"):
        prepare(StateFolder(tmp_path / "state"), account=None)
    assert (tmp_path / "state").read_text() == "mine"


@needs_root
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "state"
    theirs.mkdir()
    os.chown(theirs, NOBODY.uid, NOBODY.gid)
    with pytest.raises(StateError, match="belongs to user id 65534"):
        own_private_folder(theirs)


@needs_root
def test_a_closed_checkout_keeps_its_data_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_root = Path("/var/lib/perfdb-test")
    monkeypatch.setattr(state_module, "RELOCATED_ROOT", open_root)
    checkout = tmp_path / "closed"
    checkout.mkdir(mode=0o700)
    folder = StateFolder(checkout / ".perfdb")
    socket_before = folder.postgres_socket_folder
    try:
        prepare(folder, account=NOBODY)
        assert folder.path.is_symlink()
        assert folder.path.resolve().parent == open_root
        assert NOBODY.can_enter(folder.postgres)
        assert folder.postgres.stat().st_uid == NOBODY.uid
        assert folder.postgres_socket_folder == socket_before, "settings read before the move stay right"
        prepare(folder, account=NOBODY)
    finally:
        _remove(folder.path.resolve())
        open_root.rmdir()


@needs_root
def test_nothing_is_left_elsewhere_when_the_link_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "RELOCATED_ROOT", tmp_path / "elsewhere")
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    with pytest.raises(StateError, match="file: File exists"):
        prepare(StateFolder(blocker / "state"), account=NOBODY)
    assert not (tmp_path / "elsewhere").exists()


@needs_root
def test_data_that_the_account_cannot_reach_are_not_moved(tmp_path: Path) -> None:
    kept = tmp_path / "closed" / ".perfdb" / "precious"
    kept.mkdir(parents=True)
    kept.parent.parent.chmod(0o700)
    with pytest.raises(StateError, match="holds data, but the database's account 'nobody' cannot enter it"):
        prepare(StateFolder(kept.parent), account=NOBODY)
    assert kept.is_dir()


def _remove(folder: Path) -> None:
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            Path(root, name).unlink()
        for name in folders:
            Path(root, name).rmdir()
    folder.rmdir()
