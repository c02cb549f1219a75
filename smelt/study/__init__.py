"""What is run: the study file, its cells and runs, their identifiers and their validation."""

from smelt.study.geometry import Execution, Geometry
from smelt.study.runs import RunPoint, RunSpec, ablation_points, run_points
from smelt.study.study import Study, load_study, study_path

__all__ = [
    "Execution",
    "Geometry",
    "RunPoint",
    "RunSpec",
    "Study",
    "ablation_points",
    "load_study",
    "run_points",
    "study_path",
]
