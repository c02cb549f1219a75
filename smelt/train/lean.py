"""Lightning without the packages that it imports for nothing here.

Lightning imports torchmetrics to ask of logged values whether they are one of its two classes. torchmetrics
in turn imports scipy.signal, matplotlib and, where installed, transformers: 1.0 to 2.9 s of processor time
in every one of a study's processes, as much as torch itself. Nothing here logs a torchmetrics object, so
two empty classes answer the question as well; torchmetrics itself stays importable afterwards. All of
Lightning is imported through this module, since the first import decides.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from types import ModuleType

from torch import nn

_NAME = "torchmetrics"


def _stand_in() -> ModuleType:
    module = ModuleType(_NAME)
    module.__version__ = importlib.metadata.version(_NAME)
    for name in ("Metric", "MetricCollection"):
        setattr(module, name, type(name, (nn.Module,), {}))
    return module


if _NAME not in sys.modules:
    sys.modules[_NAME] = _stand_in()
    try:
        importlib.import_module("lightning.pytorch")
    finally:
        del sys.modules[_NAME]

from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment  # noqa: E402
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import TQDMProgressBar  # noqa: E402
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy  # noqa: E402
from lightning.pytorch.utilities.exceptions import SIGTERMException  # noqa: E402

__all__ = [
    "Callback",
    "DDPStrategy",
    "LightningDataModule",
    "LightningEnvironment",
    "LightningModule",
    "Logger",
    "ModelParallelStrategy",
    "SIGTERMException",
    "SLURMEnvironment",
    "TQDMProgressBar",
    "TensorBoardLogger",
    "Trainer",
    "WandbLogger",
]
