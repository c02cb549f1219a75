"""Train a tiny run in a process of its own: `child.py OUT [DIE_AFTER_UPDATE [SIGNAL]]`."""

import os
import signal
import sys
from pathlib import Path

from stand_in import RandomCorpus, tiny_spec

from smelt.train.engine import train
from smelt.train.hardware import plan
from smelt.train.keeper import Keeper


def die_after(number, kind):
    """Send this process a signal once everything that is due after an update is done."""
    original = Keeper.on_train_batch_end

    def patched(self, trainer, module, outputs, batch, batch_index):
        original(self, trainer, module, outputs, batch, batch_index)
        if batch[0] + 1 == number:
            os.kill(os.getpid(), kind)

    Keeper.on_train_batch_end = patched


if __name__ == "__main__":
    if len(sys.argv) > 2:
        die_after(int(sys.argv[2]), getattr(signal, sys.argv[3] if len(sys.argv) > 3 else "SIGKILL"))
    spec = tiny_spec()
    sys.exit({"complete": 0, "stopped": 75}[train(spec, RandomCorpus(), Path(sys.argv[1]), plan(spec))])
