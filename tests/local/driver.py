"""A supervisor in a process of its own, for tests: `python -m tests.local.driver LOGS SERVICES`.

SERVICES is JSON: name -> [command, wait of the SIGTERM step in seconds]. One line of JSON (name -> [pid,
restarts]) is printed at every change. It needs its own process because it reaps every child it has.
"""

import json
import signal
import sys
from pathlib import Path

from perfdb.local.orphans import become_subreaper
from perfdb.local.service import Service, StopStep
from perfdb.local.supervisor import Child, StopRequested, Supervisor


def _print(children: list[Child]) -> None:
    print(json.dumps({child.service.name: [child.pid, child.restarts] for child in children}), flush=True)


def main(logs: str, services: str) -> None:
    become_subreaper()
    supervisor = Supervisor(logs=Path(logs), on_change=_print)
    parsed = json.loads(services)
    try:
        for name, (command, wait_s) in parsed.items():
            supervisor.start(
                Service(
                    name=name,
                    command=("/bin/bash", "-c", command),
                    stop_steps=(StopStep(signal.SIGTERM, wait_s),),
                    death_signal=signal.SIGKILL,
                )
            )
        while True:
            supervisor.step(timeout_s=60)
    except StopRequested:
        supervisor.stop(set(parsed))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
