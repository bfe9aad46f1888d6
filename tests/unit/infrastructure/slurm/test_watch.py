"""What a site's helper holds of allocations that were released: nothing."""

import os
from pathlib import Path

import pytest

from yunhe.infrastructure.slurm.site import watch as watch_module
from yunhe.infrastructure.slurm.site.ledger import Ledger
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm
from yunhe.infrastructure.slurm.site.watch import SlurmWatch


class SilentSlurm(Slurm):
    """Carries out whatever it is asked, and knows no job."""

    def ask(self, program: str, *arguments: str, timeout_s: float = 1.0) -> str:
        del program, arguments, timeout_s
        return ""


def test_of_a_released_allocation_nothing_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(str(tmp_path))
    watch = SlurmWatch(ledger, SilentSlurm(SiteSettings(str(tmp_path))), accounting=lambda: False)
    watch.queue.taken_at = 1.0
    names = [f"a{number}" for number in range(20)]
    for name in names:
        run = ledger.run(name)
        run.make(os.geteuid())
        ledger.own(run, token=1, project_id="p1")
        run.claim({"resources": {}, "claimed_at": 0.0})
        run.write_record("stop", {"at": 0.0, "grace_s": 0.0, "token": 1})
    watch.look_all(-1)
    monkeypatch.setattr(watch_module, "SETTLE_S", 0.0)
    assert {seen["phase"] for seen in watch.look_all(-1)[0]} <= {"exited", "unknown"}
    for name in names:
        ledger.discard(ledger.run(name))
        watch.forget(name)
    watch.look_all(-1)
    assert {name: held for name, held in vars(watch).items() if isinstance(held, dict) and held} == {}
