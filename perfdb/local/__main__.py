"""The supervisor process of one installation: `python -m perfdb.local`, which `manage.py up` starts."""

import argparse
import os
import sys
from collections.abc import Sequence

from perfdb.local.account import server_account
from perfdb.local.cores import CoresError
from perfdb.local.listener import PortTakenError, open_listener
from perfdb.local.postgres import PostgresError
from perfdb.local.stack import CHECKOUT, Stack
from perfdb.local.state import StateError, locate, make_secret_key, prepare
from perfdb.local.status import AlreadyRunningError, Lock
from perfdb.local.supervisor import ServiceFailedError, StopRequested
from perfdb.local.valkey import ValkeyError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stack until a stop signal; 0 after one, 1 when it could not start, with the reason printed."""
    parser = argparse.ArgumentParser(prog="perfdb.local")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    options = parser.parse_args(arguments)
    os.chdir(CHECKOUT)
    state = locate(checkout=CHECKOUT)
    account = server_account()
    try:
        prepare(state, account=account)
        _lock = Lock(state.lock_file)
        make_secret_key(state)
        with open_listener(options.host, options.port) as listener:
            Stack(state=state, account=account, host=options.host, listener=listener).run()
    except StopRequested:
        return 0
    except AlreadyRunningError:
        print(f"perfdb did not start: it is already running on {state.path}", file=sys.stderr)
    except (StateError, CoresError, PortTakenError, PostgresError, ValkeyError, ServiceFailedError) as error:
        print(f"perfdb did not start: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
